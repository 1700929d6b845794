"""The verdict on the work of a case: more is red, and so is other work of the model."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.baselines.work import StoredWork, WorkBaseline, canonical
from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import NO_MEMORY, PHASES, CallCount, Compilation
from ddp_perf.work.changes import grows, shrinks, work_changes
from ddp_perf.work.session import comparison_of, judge_work
from tests.builders import make_case, make_cases, make_structure
from tests.works import SITE, make_collective, make_operation, make_site, make_work, step_works

CASE = make_case()
MM = (SITE, {"name": "aten.mm", "count": 2, "read": 100, "flops": 1000})
USUAL = make_work(MM)


def baseline(work, case=CASE, torch="2.13"):
    stored = StoredWork(options=case.work(), step=work)
    return WorkBaseline(suite=case.suite, torch=torch, cases={case.id: stored})


def judged(old, new, case=CASE, torch="2.13.0+cpu", **options):
    return judge_work(case, new, [baseline(old)], torch=torch, **options)


def outcome(old, new):
    return judged(old, new).outcome


def replaced(work=USUAL, **fields):
    return msgspec.structs.replace(work, **fields)


def memory(**fields):
    return replaced(memory=msgspec.structs.replace(NO_MEMORY, **fields))


def test_equal_counts_pass():
    verdict = judged(USUAL, USUAL)
    assert verdict.outcome is Outcome.PASS
    assert verdict.reason == "2 operations a step, as stored"
    assert verdict.changes == ()


def test_bytes_of_computed_and_uncomputed_values_are_not_compared():
    """A kernel may allocate memory of its own, which is not inferred without its values."""
    larger = make_work((SITE, {"name": "aten.mm", "count": 2, "read": 900, "flops": 1000}))
    computed = replaced(
        larger, computed=True, memory=msgspec.structs.replace(NO_MEMORY, allocations=1, peak=9)
    )

    for old, new in ((USUAL, computed), (computed, USUAL)):
        verdict = judged(old, new)
        assert verdict.outcome is Outcome.PASS
        assert "bytes are not compared" in verdict.reason
    more = replaced(make_work((SITE, {"name": "aten.mm", "count": 3})), computed=True)
    assert outcome(USUAL, more) is Outcome.REGRESSION


def test_nothing_stored_is_no_baseline():
    empty = WorkBaseline(suite=CASE.suite, torch="2.13")
    assert judge_work(CASE, USUAL, [empty], torch="2.13.0").outcome is Outcome.NO_BASELINE
    assert judge_work(CASE, USUAL, [], torch="2.13.0").outcome is Outcome.NO_BASELINE


MORE = {
    "an operation": make_work(MM, (SITE, {})),
    "bytes": make_work((SITE, {**MM[1], "read": 101})),
    "FLOPs": make_work((SITE, {**MM[1], "flops": 1001})),
    "a host read": make_work(MM, (SITE, {"name": "aten._local_scalar_dense"})),
    "a collective": replaced(collectives=(make_collective(),)),
    "allocations": memory(allocations=1),
    "allocated bytes": memory(allocated=1),
    "peak": memory(peak=1),
    "saved tensors": memory(saved_tensors=1),
    "saved bytes": memory(saved=1),
    "kept": memory(kept=1),
    "nodes of the autograd graph": replaced(autograd_nodes={"CloneBackward0": 1}),
    "graphs": replaced(compilation=Compilation(graphs=1)),
    "parameters": replaced(structure=make_structure(parameters=809)),
}
ONLY_LESS = set(MORE) - {"FLOPs", "a collective", "parameters"}


@pytest.mark.parametrize("what", MORE)
def test_more_of_anything_is_a_regression(what):
    verdict = judged(USUAL, MORE[what])
    assert verdict.outcome is Outcome.REGRESSION
    share = ", +0.1 % FLOPs" if what == "FLOPs" else ""
    assert verdict.reason.startswith(f"the step does more work than stored{share}: ")


@pytest.mark.parametrize("what", sorted(ONLY_LESS))
def test_only_less_is_an_improvement(what):
    verdict = judged(MORE[what], USUAL)
    assert verdict.outcome is Outcome.IMPROVEMENT
    assert verdict.reason.startswith("the step does less work than stored: ")


@pytest.mark.parametrize(
    ("what", "fewer"),
    [
        ("FLOPs", "fewer FLOPs"),
        ("a collective", "fewer bytes to send"),
        ("parameters", "fewer parameters"),
    ],
)
def test_other_work_of_the_model_is_a_regression(what, fewer):
    verdict = judged(MORE[what], USUAL)
    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.reason.startswith(f"the step does other work than stored: {fewer}: ")


def test_a_matrix_product_in_a_lower_precision_is_other_work():
    lower = make_work((SITE, {**MM[1], "dtype": "bfloat16", "read": 50}))
    assert outcome(USUAL, lower) is Outcome.REGRESSION


def test_smaller_messages_of_another_dtype_are_other_work():
    old = replaced(collectives=(make_collective(),))
    new = replaced(collectives=(make_collective(dtype="float16", bytes=2048),))
    assert outcome(old, new) is Outcome.REGRESSION


def test_work_that_only_moved_to_another_phase_is_undecided():
    moved = make_work((SITE, {**MM[1], "phase": "backward"}))
    verdict = judged(USUAL, moved)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "2 aten.mm (float32) moved from forward to backward" in verdict.reason


def test_collectives_in_another_order_are_undecided():
    one, other = make_collective(), make_collective(kind="broadcast")
    old, new = replaced(collectives=(one, other)), replaced(collectives=(other, one))
    assert outcome(old, new) is Outcome.UNDECIDED


@pytest.mark.parametrize("stored", ["2.12", "2.14"])
def test_another_torch_is_incomparable_and_shows_the_difference(stored):
    more = MORE["an operation"]
    verdict = judge_work(CASE, more, [baseline(USUAL, torch=stored)], torch="2.13.0")
    assert verdict.outcome is Outcome.INCOMPARABLE
    assert "2.13" in verdict.reason
    assert stored in verdict.reason
    assert verdict.changes == work_changes(USUAL, more)


def test_another_patch_version_of_torch_is_compared():
    assert judged(USUAL, USUAL, torch="2.13.9+cu130").outcome is Outcome.PASS


def test_the_counts_of_this_torch_are_preferred():
    more = MORE["an operation"]
    both = [baseline(more, torch="2.12"), baseline(USUAL)]
    assert judge_work(CASE, USUAL, both, torch="2.13.0").outcome is Outcome.PASS
    assert comparison_of(CASE, both, "2.13.0") == ("2.13", both[1].cases[CASE.id])


def test_changed_options_do_not_hinder_the_comparison():
    (_, wider) = make_cases(model={**CASE.training.model, "hidden_dim": 48})
    assert wider.id == CASE.id

    red = judged(USUAL, MORE["an operation"], wider)
    green = judged(USUAL, USUAL, wider)

    assert red.outcome is Outcome.REGRESSION
    assert red.options == green.options == ("model.hidden_dim: 32 → 48",)
    assert green.outcome is Outcome.PASS
    assert green.reason.endswith(", but it is stored with other options")


def test_a_case_that_only_has_another_id_is_compared():
    other = make_case(id="another-variant")
    assert judged(USUAL, MORE["an operation"], other).outcome is Outcome.REGRESSION


def shuffled(draw, work):
    """The same work, its sites in another order and on other lines."""
    order = draw(st.permutations(range(len(work.sites))))
    index = {old: new for new, old in enumerate(order)}

    def moved(counts):
        return tuple(msgspec.structs.replace(one, site=index[one.site]) for one in counts)

    lines = draw(st.integers(0, 5))
    sites = [work.sites[old] for old in order]
    compiled = work.compilation and msgspec.structs.replace(
        work.compilation,
        breaks=moved(work.compilation.breaks),
        recompilations=moved(work.compilation.recompilations),
    )
    return msgspec.structs.replace(
        work,
        sites=tuple(msgspec.structs.replace(site, line=site.line + lines) for site in sites),
        operations=tuple(sorted(moved(work.operations))),
        collectives=moved(work.collectives),
        kept=moved(work.kept),
        calls=moved(work.calls),
        callers=moved(work.callers),
        compilation=compiled or None,
    )


@given(st.data(), step_works())
def test_equal_counts_pass_whatever_the_order_and_the_lines_of_the_sites(data, work):
    assert outcome(work, shuffled(data.draw, work)) is Outcome.PASS


@given(step_works())
def test_renamed_functions_files_and_modules_pass(work):
    """Custom operations and classes keep their names: these are what a step does."""
    sites = [
        msgspec.structs.replace(
            site, file=f"new_{site.file}", function="g", text=site.text[::-1], module="blocks.*"
        )
        for site in work.sites
    ]
    by_name = {(site.file, site.function) for site in work.sites}
    if len(by_name) == len({site.file for site in sites}):  # no two functions become one
        assert outcome(work, replaced(work, sites=tuple(sites))) is Outcome.PASS


@given(step_works(), st.sampled_from(PHASES))
def test_any_added_operation_is_a_regression(work, phase):
    added = make_operation(phase=phase, name="aten.contiguous", dtype="float64")
    new = replaced(work, operations=tuple(sorted((*work.operations, added))))
    assert outcome(work, new) is Outcome.REGRESSION
    assert outcome(new, work) is Outcome.IMPROVEMENT


@given(step_works(), step_works())
def test_what_is_more_one_way_is_less_the_other_way(old, new):
    there, back = work_changes(old, new), work_changes(new, old)
    assert len(there) == len(back)
    assert sum(map(grows, there)) == sum(map(shrinks, back))
    assert sum(map(shrinks, there)) == sum(map(grows, back))


@given(step_works(), step_works())
def test_only_equal_totals_pass(old, new):
    def totals(work):
        table = {}
        for one in work.operations:
            key = one.phase, one.name, one.dtype
            before = table.get(key, (0, 0, 0))
            more = one.count, one.read + one.written, one.flops
            table[key] = tuple(a + b for a, b in zip(before, more, strict=True))
        return table, work.memory, sorted(work.autograd_nodes.values())

    if outcome(old, new) is Outcome.PASS:
        assert totals(old) == totals(new)


@given(step_works(), step_works())
def test_a_stored_work_is_judged_as_the_counted_one(old, new):
    changes = work_changes(old, new)
    stored = work_changes(canonical(old), canonical(new))
    assert [one.what for one in changes] == [one.what for one in stored]
    assert outcome(old, new) is outcome(canonical(old), canonical(new))


@given(step_works(), step_works())
def test_the_reason_of_a_red_case_names_a_change_that_decides(old, new):
    verdict = judged(old, new)
    if verdict.outcome is Outcome.REGRESSION:
        deciding = [one for one in verdict.changes if grows(one)] or [
            one for one in verdict.changes if shrinks(one)
        ]
        assert deciding[0].what in verdict.reason


def test_a_third_more_flops_come_first_with_their_share_of_the_step():
    """A model so small that each of its operations costs as much as any other."""
    old = make_work((SITE, {"name": "aten.mm", "count": 12, "flops": 8 * 10**8}))
    more = make_work(
        (SITE, {"name": "aten.mm", "count": 16, "flops": 10_640 * 10**5}),
        (SITE, {"name": "aten.add", "count": 7}),
    )

    verdict = judged(old, more)

    assert verdict.reason.startswith(
        "the step does more work than stored, +33 % FLOPs: +4 aten.mm (float32), +264M FLOPs"
    )
    assert [change.name for change in verdict.changes] == ["aten.mm", "aten.add"]
    assert "in all 12 → 23 operations (+92 %), 800M → 1.06G FLOPs (+33 %)" in verdict.reason


def test_the_site_of_an_added_line_is_named():
    added = make_site(43, "x = x.contiguous()")
    verdict = judged(USUAL, make_work(MM, (added, {"count": 2, "written": 134 * 10**6})))
    assert verdict.reason.endswith(
        "+2 aten.clone (float32), +134 MB, in forward (my_model.py:43 Block.forward);"
        " in all 100 bytes → 134 MB moved, 2 → 4 operations (+100 %), 1,000 FLOPs"
    )


@pytest.mark.parametrize(
    ("calls", "expected"), [(1, Outcome.PASS), (4, Outcome.PASS), (5, Outcome.REGRESSION)]
)
def test_a_few_more_calls_of_functions_are_a_function_that_was_extracted(calls, expected):
    usual = make_work((SITE, {"count": 400}))
    more = replaced(usual, calls=(CallCount(site=0, count=calls),))

    verdict = judged(usual, more)

    assert verdict.outcome is expected
    assert f"{calls} more call" in verdict.reason or expected is Outcome.REGRESSION
    assert verdict.changes


def test_the_same_products_in_another_half_precision_are_other_work():
    half, brain = (make_work((SITE, {**MM[1], "dtype": of})) for of in ("float16", "bfloat16"))
    verdict = judged(half, brain)
    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.reason.startswith(
        "the step does other work than stored: FLOPs in another precision: 2 aten.mm: float16 →"
    )


def test_as_many_bytes_of_another_type_did_not_move():
    before, after = (make_work((SITE, {"dtype": of, "read": 8})) for of in ("int32", "float32"))
    verdict = judged(before, after)
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.reason.startswith("the step does as much work as stored, but not the same: 1 ")


def test_a_host_read_is_no_read_of_the_optimizers_that_moved():
    """An optimizer reads numbers of the host, so a read in its place makes the host wait anew."""
    read = {"name": "aten._local_scalar_dense", "read": 4}
    before, after = (make_work((SITE, {**read, "phase": of})) for of in ("optimizer", "forward"))
    verdict = judged(before, after)
    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.changes[0].kind == "host_read"
