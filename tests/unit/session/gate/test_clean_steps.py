"""Where steps have a witness, other processes do little harm to a launch with enough clean ones."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import RankConditions
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.metric import CPU_TIME, EFFICIENCY, METRICS, STEP_TIME, TAIL
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.disturbance import (
    find_disturbance,
    prevailing_disturbance,
    with_disturbance,
)
from tests.builders import (
    make_cases,
    make_finding,
    make_launch,
    with_conditions,
)

ONE, TWO = make_cases(tolerances={"step_time": 0.05}, steps=62)
WIDE = msgspec.structs.replace(
    TWO, tolerances=msgspec.structs.replace(TWO.tolerances, step_time=0.3)
)
MEASURED = 60
BUSY = 0.12  # the others' share: more than the tolerance, and harmless to clean steps


def measured(case, *clean, **conditions):
    """Return launches of 60 steps, of which so many were clean; None: without a witness."""
    launches = [
        make_launch(case, number, step_s=(0.01,) * MEASURED, waited_s=waits(count))
        for number, count in enumerate(clean)
    ]
    measurement = Measurement(case=case, launches=tuple(launches), failures=())
    return with_conditions(measurement, *[RankConditions(**conditions)] * len(clean))


def waits(clean):
    return () if clean is None else (0.0,) * clean + (0.01,) * (MEASURED - clean)


def found(*clean, metric=STEP_TIME.name, case=TWO, **conditions):
    return find_disturbance(case.id, {case.id: measured(case, *clean, **conditions)}, metric)


@pytest.mark.parametrize(("clean", "disturbed"), [(60, 0), (20, 0), (19, 1), (0, 1), (None, 1)])
def test_other_processes_disturb_a_launch_only_if_few_of_its_steps_are_clean(clean, disturbed):
    disturbance = found(clean, foreign=BUSY)

    assert (disturbance.disturbed if disturbance else 0) == disturbed


def test_a_short_launch_needs_as_many_clean_steps_as_its_schedule_has():
    schedule = msgspec.structs.replace(TWO.schedule, steps=12)
    short = msgspec.structs.replace(TWO, schedule=schedule)

    is_disturbed = [found(clean, case=short, foreign=BUSY) is not None for clean in (9, 10)]

    assert is_disturbed == [True, False]


@pytest.mark.parametrize(
    ("metric", "case", "harmless", "harmful"),
    [
        ("step_time", TWO, 0.15, 0.151),
        ("efficiency", TWO, 0.15, 0.151),
        ("tail", TWO, 0.05, 0.051),
        ("step_time", WIDE, 0.3, 0.301),
        ("tail", WIDE, 0.3, 0.301),
    ],
)
def test_other_processes_that_take_much_disturb_clean_steps_too(metric, case, harmless, harmful):
    """They slow down the memory. The mean in the tail contains all that they took."""
    assert found(60, metric=metric, case=case, foreign=harmless) is None
    assert found(60, metric=metric, case=case, foreign=harmful).disturbed == 1


@pytest.mark.parametrize("metric", [STEP_TIME.name, TAIL.name, EFFICIENCY.name])
@pytest.mark.parametrize("clean", [60, 0, None], ids=["all clean", "none clean", "no witness"])
def test_stolen_time_does_harm_from_the_tolerance_on(clean, metric):
    """The witness does not see it."""
    assert found(clean, metric=metric, stolen=0.05) is None
    assert found(clean, metric=metric, stolen=0.051).disturbed == 1


@pytest.mark.parametrize("cause", ["quota", "memory", "slow_clock"])
def test_clean_steps_do_not_outweigh_other_causes(cause):
    assert found(60, **{cause: 0.06}).disturbed == 1


@pytest.mark.parametrize("case", [TWO, WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("cause", ["foreign", "stolen"])
def test_cpu_time_is_disturbed_only_where_the_cores_were_mostly_busy(cause, case):
    """A wait is no part of it, but others slow down the memory and empty the caches."""
    assert found(0, metric=CPU_TIME.name, case=case, **{cause: 0.4}) is None
    assert found(60, metric=CPU_TIME.name, case=case, **{cause: 0.401}).disturbed == 1


@pytest.mark.parametrize("conditions", [{"slow_clock": 0.051}, {"overheated": True}])
def test_cpu_time_is_disturbed_by_a_slow_clock_from_the_tolerance_on(conditions):
    assert found(0, metric=CPU_TIME.name, slow_clock=0.05, overheated=False) is None
    assert found(0, metric=CPU_TIME.name, **conditions).disturbed == 1


@pytest.mark.parametrize("cause", ["quota", "memory"])
def test_cpu_time_is_not_disturbed_by_other_waits(cause):
    assert found(0, metric=CPU_TIME.name, **{cause: 0.9}) is None


@pytest.mark.parametrize("metric", [metric.name for metric in METRICS])
def test_a_machine_without_clean_steps_leaves_cpu_time_and_memory_to_be_judged(metric):
    finding = make_finding(TWO, Outcome.PASS, metric=metric)

    judged = with_disturbance(finding, {TWO.id: measured(TWO, 3, 3, foreign=0.31)})

    decided = metric in ("cpu_time", "peak_memory")
    assert judged.verdict.outcome is (Outcome.PASS if decided else Outcome.INVALID)


def test_efficiency_needs_clean_steps_on_one_rank_as_well():
    measurements = {
        TWO.id: measured(TWO, 60, foreign=BUSY),
        ONE.id: measured(ONE, 5, foreign=BUSY),
    }

    invalid = [
        prevailing_disturbance(TWO.id, measurements, metric.name) is not None
        for metric in (STEP_TIME, EFFICIENCY)
    ]

    assert invalid == [False, True]


def test_the_sentence_states_how_many_steps_were_clean_and_how_many_are_enough():
    disturbance = found(7, 12, 3, foreign=BUSY)

    assert str(disturbance) == (
        "3 of 3 launches were disturbed, because other processes took 12 % of the ranks' cores"
        " (find them with top); only 7 of 60 steps were undisturbed, and 20 are needed"
    )


def test_the_sentence_is_about_the_launches_that_lacked_clean_steps():
    assert "; only 5 of 60 steps were undisturbed" in str(found(60, 60, 5, foreign=BUSY))


def test_the_sentence_on_efficiency_is_about_the_one_rank_launches_that_lacked_clean_steps():
    measurements = {
        TWO.id: measured(TWO, 60, foreign=BUSY),
        ONE.id: measured(ONE, 5, foreign=BUSY),
    }

    disturbance = find_disturbance(TWO.id, measurements, EFFICIENCY.name)

    assert "; only 5 of 60 steps were undisturbed" in str(disturbance)


def test_the_sentence_counts_the_clean_steps_of_one_launch():
    """Launches differ in their numbers of steps, since some had to go on for longer."""
    longer = make_launch(TWO, 1, step_s=(0.01,) * 300, waited_s=(0.01,) * 290 + (0.0,) * 10)
    launches = (*measured(TWO, 3).launches, longer, *measured(TWO, 19).launches)
    measurement = Measurement(case=TWO, launches=launches, failures=())
    busy = with_conditions(measurement, *[RankConditions(foreign=BUSY)] * 3)

    assert "; only 10 of 300 steps were undisturbed" in str(
        find_disturbance(TWO.id, {TWO.id: busy})
    )


def test_clean_steps_are_no_remedy_where_they_are_not_lacking_or_for_the_tail():
    assert "clean" not in str(found(60, foreign=0.5))
    assert "clean" not in str(found(5, metric=TAIL.name, foreign=BUSY))


def test_stolen_time_has_no_remark_on_what_does_no_harm():
    assert str(found(60, stolen=0.5)) == (
        "1 of 1 launches was disturbed, because the hypervisor took 50 % of the ranks' cores for"
        " other machines"
    )


def test_the_ranks_own_use_of_a_quota_is_no_part_of_their_cpu_time():
    finding = make_finding(TWO, Outcome.PASS, metric=CPU_TIME.name)

    assert with_disturbance(finding, {TWO.id: measured(TWO, 0, own_quota=0.5)}) is finding


@pytest.mark.parametrize("cause", ["foreign", "stolen"])
def test_without_a_witness_the_sentence_names_no_clean_steps(cause):
    assert found(None, **{cause: 0.5}).causes[0].endswith(("top)", "machines"))


def test_other_causes_have_no_remark_on_clean_steps():
    assert "clean" not in str(found(0, quota=0.5))


def test_the_sentence_states_what_does_no_harm_where_clean_steps_would_not_be_enough():
    assert str(found(7, foreign=0.31)).endswith("(find them with top); up to 5 % does no harm")
    tail = find_disturbance(TWO.id, {TWO.id: measured(TWO, 60, foreign=0.31)}, "tail")
    assert str(tail).endswith("; up to 5 % does no harm")
