"""What changed between two steps, and where."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.work import NO_MEMORY, CallCount, Compilation, GraphBreak, KeptMemory
from ddp_perf.work.changes import added_work, grows, shrinks, work_changes
from tests.builders import make_structure
from tests.works import make_site, make_step_work, make_work

NORM = make_site(10, "x = self.norm(x)")
CLONE = make_site(42, "x = x.clone()")
PRODUCT = {"name": "aten.mm", "dtype": "bfloat16", "count": 6, "read": 100, "flops": 50}


def only(old, new):
    (change,) = work_changes(old, new)
    return change


def shown(old, new):
    return [(one.what, one.before, one.after) for one in work_changes(old, new)]


def test_an_added_operation_has_its_numbers_and_its_line():
    old = make_work((NORM, {"count": 1, "read": 8}))
    new = make_work((NORM, {"count": 1, "read": 8}), (CLONE, {"count": 2, "written": 64}))

    change = only(old, new)

    assert (change.kind, change.what, change.phase) == (
        "operation",
        "aten.clone (float32)",
        "forward",
    )
    assert (change.before, change.after, change.bytes, change.flops) == (1, 3, 64, 0)
    assert (change.name, change.dtypes) == ("aten.clone", ("float32",))
    assert [(place.site, place.count) for place in change.places] == [(CLONE, 2)]


def test_the_place_where_most_was_added_comes_first():
    other = make_site(50, "y = y.clone()")
    new = make_work((CLONE, {"count": 1}), (other, {"count": 3}))
    assert [place.site for place in only(make_work(), new).places] == [other, CLONE]


def test_more_bytes_of_as_many_operations_have_a_place():
    change = only(make_work((CLONE, {"read": 8})), make_work((CLONE, {"read": 16})))
    assert (change.before, change.after, change.bytes) == (1, 1, 8)
    assert [place.site for place in change.places] == [CLONE]


def test_another_dtype_of_as_many_operations_is_one_change():
    old = make_work((NORM, PRODUCT))
    new = make_work((NORM, {**PRODUCT, "dtype": "float32", "read": 200}))

    change = only(old, new)

    assert change.what == "aten.mm: bfloat16 → float32"
    assert (change.before, change.after, change.bytes, change.flops) == (6, 6, 100, 0)
    assert change.dtypes == ("bfloat16", "float32")
    assert grows(change)
    assert shrinks(only(new, old))


def test_operations_that_only_moved_are_neither_more_nor_less():
    old = make_work((NORM, PRODUCT))
    new = make_work((CLONE, {**PRODUCT, "phase": "backward"}))

    change = only(old, new)

    assert (change.moved_from, change.phase) == ("forward", "backward")
    assert (change.before, change.after, change.bytes) == (6, 6, 0)
    assert not grows(change)
    assert not shrinks(change)
    assert [place.site for place in change.places] == [CLONE]


def test_a_part_that_moved_is_moved():
    both = {**PRODUCT, "count": 3, "read": 50, "flops": 25}
    old = make_work((NORM, PRODUCT))
    new = make_work((NORM, both), (CLONE, {**both, "phase": "backward"}))
    assert only(old, new).moved_from == "forward"


@pytest.mark.parametrize(("phase", "kind"), [("forward", "host_read"), ("optimizer", "operation")])
def test_a_host_read_is_one_outside_the_optimizer(phase, kind):
    read = {"name": "aten._local_scalar_dense", "phase": phase}
    assert only(make_work(), make_work((NORM, read))).kind == kind


def test_memory_has_numbers_and_bytes():
    names = ("allocations", "allocated", "saved_tensors", "saved", "peak", "kept")
    memory = msgspec.structs.replace(NO_MEMORY, **dict(zip(names, range(1, 7), strict=True)))
    kept = (KeptMemory(site=0, bytes=6),)

    changes = work_changes(make_work(), make_step_work(memory=memory, kept=kept))

    assert [(one.what, one.after, one.unit, one.bytes) for one in changes] == [
        ("memory kept after the step", 6, "bytes", 0),
        ("allocations", 1, "", 2),
        ("tensors saved for the backward", 3, "", 4),
        ("peak memory", 5, "bytes", 0),
    ]
    assert [place.site for place in changes[0].places] == list(make_work().sites)


def calling(*functions, file="my_model.py"):
    """A step that calls functions so often: (name, count)."""
    sites = tuple(
        make_site(line, f"def {name}(x):", function=name, file=file)
        for line, (name, _) in enumerate(functions)
    )
    calls = tuple(CallCount(site=i, count=count) for i, (_, count) in enumerate(functions))
    return make_step_work(sites=sites, calls=calls)


def test_calls_of_a_function_are_compared_by_its_name():
    old, new = calling(("loop", 1), ("step", 1)), calling(("loop", 64), ("step", 1))
    assert shown(old, new) == [("loop", 1, 64)]
    assert [place.site.function for place in only(old, new).places] == ["loop"]


@pytest.mark.parametrize(
    "new",
    [
        calling(("new", 4), ("step", 1)),
        calling(("loop", 1), ("step", 4)),
        calling(("loop", 4), ("step", 1), file="moved.py"),
    ],
    ids=["renamed", "names exchanged", "in another file"],
)
def test_a_renamed_function_is_no_change(new):
    assert work_changes(calling(("loop", 4), ("step", 1)), new) == ()


def test_a_renamed_function_does_not_hide_an_added_one():
    old = calling(("loop", 4), ("step", 1))
    new = calling(("renamed", 4), ("step", 1), ("hook", 12))
    assert shown(old, new) == [("hook", 0, 12)]


def test_nodes_of_the_autograd_graph_are_compared_by_name():
    old = make_step_work(autograd_nodes={"MulBackward0": 1})
    new = make_step_work(autograd_nodes={"MulBackward0": 1, "CloneBackward0": 2})
    assert shown(old, new) == [("CloneBackward0", 0, 2)]


def test_a_renamed_class_of_a_users_node_is_no_change_and_one_of_torch_is():
    own, renamed = ({"MyBackward": 2}, {"YourBackward": 2})
    assert not work_changes(
        make_step_work(autograd_nodes=own), make_step_work(autograd_nodes=renamed)
    )
    old, new = {"MulBackward0": 1}, {"DivBackward0": 1}
    assert len(shown(make_step_work(autograd_nodes=old), make_step_work(autograd_nodes=new))) == 2


def compiled(*reasons, graphs=1, field="breaks"):
    breaks = tuple(GraphBreak(reason=reason, site=0) for reason in reasons)
    return make_step_work(compilation=Compilation(graphs=graphs, **{field: breaks}))


def test_a_graph_break_has_its_reason_and_its_line():
    breaks, graphs = work_changes(compiled(), compiled("call of print", graphs=2))
    assert (breaks.what, breaks.before, breaks.after, breaks.detail) == (
        "graph break",
        0,
        1,
        "call of print",
    )
    assert [place.count for place in breaks.places] == [1]
    assert (graphs.what, graphs.before, graphs.after) == ("graph", 1, 2)


def test_a_recompilation_is_a_change():
    new = compiled("size of x", field="recompilations")
    assert shown(compiled(), new) == [("recompilation", 0, 1)]


def test_as_many_graph_breaks_with_another_text_are_no_change():
    assert work_changes(compiled("call of f"), compiled("call of g")) == ()


def test_the_model_has_parameters_gradients_and_buckets():
    new = make_structure(parameters=1000, gradient_bytes=4000, buckets=(2000, 2000))
    assert shown(make_step_work(), make_step_work(structure=new)) == [
        ("parameters", 808, 1000),
        ("gradients", 3232, 4000),
        ("gradient buckets", 1, 2),
    ]


def test_what_costs_most_comes_first_and_more_before_less():
    old = make_work((NORM, {"name": "aten.add", "count": 1000}))
    new = make_work(
        (NORM, {"name": "aten.mul"}),
        (NORM, {"name": "aten.mm", "flops": 10**12}),
        (CLONE, {"written": 10**9}),
        (CLONE, {"name": "aten._local_scalar_dense"}),
    )
    assert [one.name for one in work_changes(old, new)] == [
        "aten.mm",
        "aten.clone",
        "aten._local_scalar_dense",
        "aten.mul",
        "aten.add",
    ]


def test_added_work_is_that_of_what_grows_alone():
    few, many = (make_work((CLONE, {"count": count, "read": 8})) for count in (1, 3))

    assert added_work(few, many) > added_work(few, make_work((CLONE, {"count": 2, "read": 8}))) > 0
    assert added_work(many, few) == added_work(few, few) == 0
