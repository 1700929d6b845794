"""Measured figures that contradict each other or the hardware, and figures that do not."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.launch import Collective
from ddp_perf.stats.stored_figures import audit_cases
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_collectives,
    make_environment,
    make_scripts,
    make_session,
    make_structure,
)

ONE, TWO, FOUR = make_cases(tier="gpu", world_sizes=[1, 2, 4])
HALF = make_cases(tier="gpu", world_sizes=[1, 2, 4], batch_sizes=[32])[1]
H200 = make_environment(accelerator_key="h200", accelerator_count=4, links="NV18 NV18 NV18")
STEPS = [0.010, 0.011, 0.0105]


def stored(case, steps, *, environment=H200, **changes):
    """Return one session of these launches; ``efficiency`` is that of each, in their order."""
    costs = changes.pop("efficiency", None)
    session = make_session(steps)
    launches = session.launches
    if costs is not None:
        pairs = zip(launches, costs, strict=True)
        launches = tuple({**launch, "efficiency": cost} for launch, cost in pairs)
    session = msgspec.structs.replace(session, launches=launches, environment=environment)
    return make_case_baseline(case, session, **{"first": {}, **changes})


def found(**cases):
    by_id = {case.id: case for case in (ONE, TWO, FOUR, HALF)}
    names = {"one": ONE.id, "two": TWO.id, "four": FOUR.id, "half": HALF.id}
    assert by_id.keys() == set(names.values())
    baseline = make_baseline({names[name]: case for name, case in cases.items()})
    return [(one.case_id, one.what) for one in audit_cases(baseline)]


def test_consistent_measurements_have_no_contradiction():
    two = stored(TWO, [0.012, 0.0132, 0.0126], efficiency=[1.2, 1.2, 1.2], flops=10**9)

    assert found(one=stored(ONE, STEPS), two=two, four=stored(FOUR, [0.013] * 3)) == []


def test_a_step_ratio_that_no_pair_of_launches_gives_is_reported_with_both_figures():
    two = stored(TWO, [0.012] * 3, efficiency=[1.2, 1.31, 1.2])
    baseline = make_baseline({ONE.id: stored(ONE, [0.010] * 3), TWO.id: two})

    (only,) = audit_cases(baseline)

    assert str(only) == (
        f"{TWO.id}, session of 2026-01-01: step ÷ ideal step 1.31 is stated, 1.2 follows from step"
        f" time ÷ the ideal of any of {ONE.id}"
    )


def test_the_ratio_of_a_shared_batch_is_to_its_ideal_step():
    """Two ranks with half of the batch each need 7 ms; ideally half of 10 ms."""
    one, two = make_cases(tier="gpu", batch_sizes={"global": [64]})

    def found_at(cost):
        stored_two = stored(two, [0.007] * 3, efficiency=[cost] * 3)
        baseline = make_baseline({one.id: stored(one, [0.010] * 3), two.id: stored_two})
        return [(wrong.case_id, wrong.what) for wrong in audit_cases(baseline)]

    assert found_at(1.4) == []
    assert found_at(0.7)[0] == (two.id, "step ÷ ideal step")


def test_a_ratio_of_another_round_is_no_contradiction():
    """The file does not store which launches were in one round."""
    two = stored(TWO, [0.012] * 3, efficiency=[0.012 / step for step in reversed(STEPS)])

    assert found(one=stored(ONE, STEPS), two=two) == []


def test_a_step_ratio_is_not_checked_without_the_single_rank_case_of_its_session():
    assert found(two=stored(TWO, [0.012] * 3, efficiency=[9.0] * 3)) == []


@pytest.mark.parametrize(("costs", "wrong"), [([0.9, 0.95, 0.98], True), ([0.9, 0.9, 1.0], False)])
def test_efficiency_over_100_per_cent_is_a_contradiction_if_every_launch_has_it(costs, wrong):
    assert found(two=stored(TWO, [0.012] * 3, efficiency=costs)) == (
        [(TWO.id, "efficiency")] if wrong else []
    )


def test_more_ranks_are_not_faster_at_the_same_batch_each():
    four = stored(FOUR, [0.009, 0.0095, 0.009])

    assert found(two=stored(TWO, STEPS), four=four) == [(FOUR.id, "step ms")]
    assert found(two=stored(TWO, STEPS), four=stored(FOUR, [0.009, 0.0101, 0.009])) == []


@pytest.mark.parametrize(("half_s", "wrong"), [(0.0045, True), (0.0055, False)])
def test_strong_scaling_is_not_faster_than_the_number_of_ranks(half_s, wrong):
    """Two ranks of batch 32 do what one does of batch 64."""
    cases = {"one": stored(ONE, [0.010] * 3), "half": stored(HALF, [half_s] * 3)}

    assert found(**cases) == ([(HALF.id, "speedup")] if wrong else [])


def test_strong_scaling_on_a_cpu_may_be_faster_because_caches_add_up():
    one, two = make_cases()[0], make_cases(batch_sizes=[32])[1]
    cases = {one.id: stored(one, [0.010] * 3), two.id: stored(two, [0.0045] * 3)}

    assert audit_cases(make_baseline(cases)) == []


@pytest.mark.parametrize(("flops", "wrong"), [(1.9e13, False), (2e13, True), (None, False)])
def test_an_mfu_over_100_per_cent_is_ruled_out_by_the_peak(flops, wrong):
    """1,979 TFLOP/s (fp8) for 10 ms are 19.79 TFLOP. The format of the model is not stored."""
    one = stored(ONE, [0.010] * 3, flops=None if flops is None else int(flops))

    assert found(one=one) == ([(ONE.id, "MFU")] if wrong else [])


@pytest.mark.parametrize(
    ("kind", "size", "wrong"),
    [
        ("all_reduce", 4_400_000_000, False),
        ("all_reduce", 4_600_000_000, True),
        ("all_gather", 8_800_000_000, False),
        ("all_gather", 9_200_000_000, True),
        ("send", 10**12, False),
    ],
)
def test_the_bytes_of_a_step_must_fit_through_the_link(kind, size, wrong):
    """450 GB/s for 10 ms are 4.5 GB; of two ranks, each gathers half from the other one."""
    collectives = (Collective(kind=kind, dtype="float32", bytes=size),)
    two = stored(TWO, [0.010] * 3, structure=make_structure(collectives=collectives))

    assert found(two=two) == ([(TWO.id, "GB/s of its collectives")] if wrong else [])


def test_no_peak_is_guessed_for_an_unknown_link_or_gpu():
    collectives = (Collective(kind="all_reduce", dtype="float32", bytes=10**15),)
    structure = make_structure(collectives=collectives)

    for changes in ({"links": None}, {"links": "SYS SYS SYS"}, {"accelerator_key": "h300"}):
        environment = msgspec.structs.replace(H200, **changes)
        two = stored(TWO, [0.010] * 3, structure=structure, environment=environment, flops=10**18)
        wrong = found(two=two)
        assert (TWO.id, "GB/s of its collectives") not in wrong


def test_the_recorded_figure_of_the_first_session_is_checked_against_its_median():
    assert found(one=stored(ONE, STEPS, first={"step_time": 0.0105})) == []
    assert found(one=stored(ONE, STEPS, first={"step_time": 0.0205})) == [
        (ONE.id, "first step_time")
    ]


def test_a_published_case_is_not_audited_as_measured():
    two = stored(TWO, [0.012], efficiency=[0.5], source="published")

    assert found(two=two) == []


@given(
    single=st.lists(st.floats(1e-4, 1.0), min_size=3, max_size=3),
    costs=st.lists(st.floats(1.0, 8.0), min_size=3, max_size=3),
    wrong=st.sampled_from([0.4, 2.5]),
)
def test_true_figures_are_clean_and_a_wrong_ratio_is_found(single, costs, wrong):
    """The figures are rounded as they are stored."""
    steps = [float(f"{a * b:.7g}") for a, b in zip(single, costs, strict=True)]
    costs = [float(f"{cost:.7g}") for cost in costs]
    one = stored(ONE, [float(f"{step:.7g}") for step in single])
    spread = max(single) / min(single)

    assert found(one=one, two=stored(TWO, steps, efficiency=costs)) == []
    spoilt = [costs[0] * (wrong * spread if wrong > 1 else wrong / spread), *costs[1:]]
    assert (TWO.id, "step ÷ ideal step") in found(
        one=one, two=stored(TWO, steps, efficiency=spoilt)
    )


def test_collectives_have_no_batch_and_no_scaling_to_contradict():
    cases = make_collectives()
    by_id = {case.id: make_case_baseline(case, structure=None) for case in cases}

    assert audit_cases(make_baseline(by_id)) == []


@pytest.mark.parametrize(
    ("samples", "cost"), [("{world_size} * {batch_size}", 0.7), ("{batch_size}", 1.4)]
)
def test_the_ideal_step_of_a_script_follows_from_its_samples(samples, cost):
    one, two = make_scripts(tier="gpu", samples_per_step=samples)

    def found_at(stated):
        stored_two = stored(two, [0.007] * 3, efficiency=[stated] * 3, flops=10**15)
        return audit_cases(make_baseline({one.id: stored(one, [0.010] * 3), two.id: stored_two}))

    assert "step ÷ ideal step" not in [wrong.what for wrong in found_at(cost)]
    assert "step ÷ ideal step" in [wrong.what for wrong in found_at(2 * cost)]
