"""What changed work would cost: bytes, FLOPs, launches, host reads and collectives."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.work.changes import work_changes
from ddp_perf.work.cost import cost_text, model_of, signed_ms, work_cost
from ddp_perf.work.values import CountedCase, WorkChange, WorkVerdict
from tests.builders import make_case
from tests.works import SITE, make_collective, make_operation, make_step_work

A100 = "a100-sxm4-80gb"
LAUNCH_S = 3.8e-6
GPU = make_case(tier="gpu")


def model(accelerator=A100, case=GPU):
    return model_of(CountedCase(case=case), accelerator)


def operation_s(accelerator=A100, case=GPU, **fields):
    found = model(accelerator, case).operation(make_operation(**fields), SITE)
    assert not found.left_out
    return found.seconds


def change(**fields):
    values = {"kind": "operation", "what": "aten.clone (float32)", "phase": "forward"}
    named = {"name": "aten.clone", "dtypes": ("float32",), "before": 0, "after": 1}
    return WorkChange(**{**values, **named, **fields})


def collective(**fields):
    values = {"kind": "collective", "what": "all_reduce", "name": "all_reduce"}
    return change(**{**values, "dtypes": ("float32",), **fields})


def counted(changes, before=(), after=(), case=GPU):
    return CountedCase(
        case=case,
        work=make_step_work(operations=after),
        stored=make_step_work(operations=before),
        verdict=WorkVerdict(outcome=Outcome.REGRESSION, reason="more work", changes=changes),
    )


def test_an_operation_that_moves_memory_takes_its_bytes_over_the_bandwidth():
    seconds = operation_s(name="aten.clone", count=1, read=10**9, written=10**9)
    assert seconds == pytest.approx(2e9 / 2039e9 + LAUNCH_S)


def test_an_operation_that_computes_takes_the_longer_of_both():
    product = {"name": "aten.mm", "dtype": "float32", "count": 1, "read": 10**6}
    assert operation_s(**product, flops=195 * 10**11) == pytest.approx(1 + LAUNCH_S)
    assert operation_s(**product, flops=1) == pytest.approx(10**6 / 2039e9 + LAUNCH_S)


@pytest.mark.parametrize(
    ("dtype", "precision", "tflops"),
    [
        ("float32", "fp32", 19.5),
        ("float32", "tf32", 156),
        ("float16", "fp16", 312),
        ("float32", "fp16", 19.5),
        ("bfloat16", "bf16", 312),
    ],
)
def test_the_peak_is_that_of_the_operations_own_type(dtype, precision, tflops):
    seconds = operation_s(
        case=make_case(tier="gpu", precision=precision), dtype=dtype, count=1, flops=10**15
    )
    assert seconds == pytest.approx(1e3 / tflops, rel=1e-4)


def test_a_view_takes_no_time():
    assert operation_s(name="aten.view", count=100) == 0


def test_each_kernel_and_each_host_read_costs_its_launch():
    assert operation_s(count=3, read=4) - operation_s(count=2, read=4) == pytest.approx(LAUNCH_S)
    assert operation_s(name="aten._local_scalar_dense", count=2, read=8) == pytest.approx(19.2e-6)


def collective_s(accelerator, case, one):
    found = model(accelerator, case).change(one, make_step_work(), make_step_work())
    assert not found.left_out
    return found.seconds


def test_a_collective_takes_the_time_of_a_ring_over_nvlink():
    case = make_case(tier="gpu", world_size=8)
    seconds = collective_s(A100, case, collective(before=1, after=3, bytes=2 * 300 * 10**6))
    messages = 2 * (8.4e-6 + 14 * 3.4e-6)
    assert seconds == pytest.approx(messages + 2 * 1e-3 * 14 / 8)


def test_the_step_has_the_collectives_that_a_change_has():
    case = make_case(tier="gpu", world_size=8)
    one = make_collective(bytes=10**6)
    step = model(A100, case).step(make_step_work(collectives=(one,)))
    assert step.seconds == pytest.approx(collective_s(A100, case, collective(bytes=10**6)))


def test_a_collective_of_a_smaller_group_has_fewer_messages():
    case = make_case(tier="gpu", world_size=8)
    one = collective(name="all_gather", group=2)
    assert collective_s("t4", case, one) == pytest.approx(8.4e-6 + 5.7e-6)
    assert collective_s("t4", case, msgspec.structs.replace(one, group=1)) == 0


def test_a_collective_between_nodes_is_named_as_left_out():
    case = make_case(tier="gpu", world_size=16, nodes=2)
    found = model(A100, case).change(collective(), make_step_work(), make_step_work())
    assert (found.seconds, found.left_out) == (0, ("all_reduce between nodes",))


def test_a_product_of_a_type_without_a_peak_is_named_as_left_out():
    found = model("t4").operation(make_operation(dtype="bfloat16", count=1, flops=1), SITE)
    assert (found.seconds, found.left_out) == (0, ("aten.clone in bfloat16",))


def test_the_cost_of_a_change_is_that_of_its_operations_in_both_steps():
    before = make_step_work(operations=(make_operation(count=1, read=10**9),))
    after = make_step_work(
        operations=(
            make_operation(count=3, read=3 * 10**9),
            make_operation(phase="backward", read=10**9),
            make_operation(name="aten.add", read=10**9),
            make_operation(dtype="float16", read=10**9),
        )
    )
    more = model().change(change(before=1, after=3), before, after)
    assert more.seconds == pytest.approx(2 * LAUNCH_S + 2e9 / 2039e9)
    less = model().change(change(before=3, after=1), after, before)
    assert less.seconds == -more.seconds


def test_products_in_another_type_cost_the_difference_of_both_peaks():
    product = {"name": "aten.mm", "flops": 312 * 10**11}
    before = make_step_work(operations=(make_operation(dtype="float16", **product),))
    after = make_step_work(operations=(make_operation(dtype="float32", **product),))
    slower = change(name="aten.mm", dtypes=("float16", "float32"), before=1, after=1)
    assert model().change(slower, before, after).seconds == pytest.approx(1.6 - 0.1)


def test_work_that_moved_and_what_takes_no_time_costs_nothing():
    before = make_step_work()
    after = make_step_work(operations=(make_operation(read=10**9),))
    assert model().change(change(moved_from="backward"), before, after).seconds == 0
    assert model().change(change(kind="memory", name=""), before, after).seconds == 0


def test_the_cost_is_beside_the_modelled_step_before_the_changes():
    one = make_operation(name="aten.add", count=1, read=2039 * 10**6)
    more = make_operation(read=10**6)
    cost = work_cost(counted((change(),), (one,), (one, more)), A100)
    assert cost is not None
    assert cost.change_s == pytest.approx(10**6 / 2039e9 + LAUNCH_S)
    assert cost.step_s == pytest.approx(1e-3 + LAUNCH_S)
    assert cost_text(cost) == "modelled on A100-SXM4-80GB: about +0.0043 ms a step (1 → 1.01)"


def test_a_further_host_read_is_a_lower_bound_and_one_less_is_not():
    one = make_operation(name="aten._local_scalar_dense", read=4)
    read = {"kind": "host_read", "name": one.name}
    more = work_cost(counted((change(**read),), (), (one,)), A100)
    less = work_cost(counted((change(**read, before=1, after=0),), (one,), ()), A100)
    assert more is not None
    assert less is not None
    assert ": at least +0.0096 ms a step" in cost_text(more)
    assert ": about -0.0096 ms a step" in cost_text(less)


def test_what_is_left_out_is_in_the_text():
    after = (make_operation(dtype="float64", flops=1),)
    cost = work_cost(counted((change(dtypes=("float64",)),), (), after), A100)
    assert cost is not None
    assert ", without aten.clone in float64" in cost_text(cost)


def test_a_processor_and_an_unknown_gpu_have_no_cost():
    changed = counted((change(),), (), (make_operation(read=10**6),))
    assert work_cost(changed, A100) is not None
    assert work_cost(changed, "geforce-rtx-4090") is None
    assert work_cost(msgspec.structs.replace(changed, case=make_case()), A100) is None


def test_a_case_without_a_change_that_takes_time_has_no_cost():
    assert work_cost(counted((change(kind="memory", name=""),)), A100) is None
    assert work_cost(CountedCase(case=GPU, failure="raised"), A100) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0003, "+0.30"), (-0.0123, "-12"), (0.25, "+250"), (1.5, "+1,500"), (4e-9, "+0.000004")],
)
def test_a_cost_has_two_digits(seconds, text):
    assert signed_ms(seconds) == text


def test_the_costs_of_all_changes_add_up_to_that_of_the_step():
    before = make_step_work(
        operations=(
            make_operation(name="aten.mm", dtype="float16", count=4, read=10**8, flops=10**12),
            make_operation(name="aten.add", count=2, read=10**7),
            make_operation(phase="optimizer", name="aten.mul", read=10**7),
        ),
        collectives=(make_collective(bytes=5 * 10**7),),
    )
    after = make_step_work(
        operations=(
            make_operation(name="aten.mm", dtype="float32", count=4, read=2 * 10**8, flops=10**12),
            make_operation(name="aten._local_scalar_dense", read=4),
            make_operation(phase="backward", name="aten.mul", read=10**7),
        ),
        collectives=(make_collective(bytes=2 * 10**7), make_collective(bytes=3 * 10**7)),
    )
    changes = work_changes(before, after)
    case = make_case(tier="gpu", world_size=8)
    of_model = model(A100, case)
    total_s = of_model.step(after).seconds - of_model.step(before).seconds
    each_s = [of_model.change(one, before, after).seconds for one in changes]
    assert sum(each_s) == pytest.approx(total_s)
    assert sum(seconds > 0 for seconds in each_s) >= 3
