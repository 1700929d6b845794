"""Where steps have a witness, a busy machine disturbs only launches without enough clean ones."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.disturbance import RankConditions
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.metric import CPU_TIME, EFFICIENCY, METRICS, STEP_TIME, TAIL
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.disturbance import (
    find_disturbance,
    prevailing_disturbance,
    with_disturbance,
)
from tests.builders import make_cases, make_finding, make_launch, with_conditions

ONE, TWO = make_cases(tolerances={"step_time": 0.05}, steps=62)
MEASURED = 60


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


def found(*clean, metric=STEP_TIME.name, **conditions):
    return find_disturbance(TWO.id, {TWO.id: measured(TWO, *clean, **conditions)}, metric)


@pytest.mark.parametrize(("clean", "disturbed"), [(60, 0), (20, 0), (19, 1), (0, 1), (None, 1)])
def test_other_processes_disturb_a_launch_only_if_few_of_its_steps_are_clean(clean, disturbed):
    disturbance = found(clean, foreign=0.31)

    assert (disturbance.disturbed if disturbance else 0) == disturbed


def test_a_short_launch_needs_as_many_clean_steps_as_its_schedule_has():
    schedule = msgspec.structs.replace(TWO.schedule, steps=12)
    short = msgspec.structs.replace(TWO, schedule=schedule)

    def is_disturbed(clean):
        measurements = {short.id: measured(short, clean, foreign=0.31)}
        return find_disturbance(short.id, measurements) is not None

    assert [is_disturbed(clean) for clean in (9, 10)] == [True, False]


@pytest.mark.parametrize(
    ("clean", "harmless", "harmful"),
    [(60, 0.15, 0.151), (0, 0.15, 0.151), (None, 0.05, 0.051)],
    ids=["all clean", "none clean", "no witness"],
)
def test_stolen_time_does_harm_from_a_share_on_that_depends_on_the_witness(
    clean, harmless, harmful
):
    """The witness does not see it, but a step between two interruptions is a clean one."""
    assert found(clean, stolen=harmless) is None
    assert found(clean, stolen=harmful) is not None


def test_a_wide_tolerance_is_the_harmless_share_also_with_a_witness():
    wide = msgspec.structs.replace(TWO.tolerances, step_time=0.3)
    case = msgspec.structs.replace(TWO, tolerances=wide)

    def is_disturbed(stolen):
        measurements = {case.id: measured(case, 60, stolen=stolen)}
        return find_disturbance(case.id, measurements) is not None

    assert [is_disturbed(stolen) for stolen in (0.3, 0.31)] == [False, True]


@pytest.mark.parametrize("cause", ["quota", "memory", "slow_clock"])
def test_clean_steps_do_not_outweigh_other_causes(cause):
    assert found(60, **{cause: 0.06}).disturbed == 1


EVERY = {
    "foreign": 0.5,
    "stolen": 0.5,
    "quota": 0.5,
    "memory": 0.5,
    "slow_clock": 0.5,
    "overheated": True,
}
CLOCKS = {"slow_clock", "overheated"}


@pytest.mark.parametrize("cause", EVERY)
def test_cpu_time_is_disturbed_only_by_a_slow_clock(cause):
    is_disturbed = found(0, metric=CPU_TIME.name, **{cause: EVERY[cause]}) is not None

    assert is_disturbed is (cause in CLOCKS)


@pytest.mark.parametrize("metric", [metric.name for metric in METRICS])
def test_a_machine_without_clean_steps_leaves_cpu_time_and_memory_to_be_judged(metric):
    finding = make_finding(TWO, Outcome.PASS, metric=metric)

    judged = with_disturbance(finding, {TWO.id: measured(TWO, 3, 3, foreign=0.31)})

    decided = metric in ("cpu_time", "peak_memory")
    assert judged.verdict.outcome is (Outcome.PASS if decided else Outcome.INVALID)


def test_efficiency_needs_clean_steps_on_one_rank_as_well():
    measurements = {
        TWO.id: measured(TWO, 60, foreign=0.31),
        ONE.id: measured(ONE, 5, foreign=0.31),
    }

    invalid = [
        prevailing_disturbance(TWO.id, measurements, metric.name) is not None
        for metric in (STEP_TIME, TAIL, EFFICIENCY)
    ]

    assert invalid == [False, False, True]


def test_the_sentence_states_how_many_steps_were_clean_and_how_many_are_enough():
    disturbance = found(7, 12, 3, foreign=0.31)

    assert str(disturbance) == (
        "3 of 3 launches were disturbed: other processes took 31 % of the ranks' cores"
        " (find them with top); 7 of 60 steps were clean, and 20 are enough"
    )


def test_the_sentence_is_about_the_launches_that_lacked_clean_steps():
    assert "; 5 of 60 steps were clean" in str(found(60, 60, 5, foreign=0.31))


def test_the_sentence_on_efficiency_is_about_the_one_rank_launches_that_lacked_clean_steps():
    measurements = {
        TWO.id: measured(TWO, 60, foreign=0.31),
        ONE.id: measured(ONE, 5, foreign=0.31),
    }

    disturbance = find_disturbance(TWO.id, measurements, EFFICIENCY.name)

    assert "; 5 of 60 steps were clean" in str(disturbance)


def test_the_sentence_counts_the_clean_steps_of_one_launch():
    """Launches differ in their numbers of steps, since some had to go on for longer."""
    longer = make_launch(TWO, 1, step_s=(0.01,) * 300, waited_s=(0.01,) * 290 + (0.0,) * 10)
    launches = (*measured(TWO, 3).launches, longer, *measured(TWO, 19).launches)
    measurement = Measurement(case=TWO, launches=launches, failures=())
    busy = with_conditions(measurement, *[RankConditions(foreign=0.31)] * 3)

    assert "; 10 of 300 steps were clean" in str(find_disturbance(TWO.id, {TWO.id: busy}))


def test_the_sentence_states_how_much_stolen_time_does_no_harm():
    assert str(found(60, stolen=0.5)) == (
        "1 of 1 launches was disturbed: the hypervisor took 50 % of the ranks' cores for other"
        " machines; up to 15 % does no harm"
    )


def test_the_sentence_states_the_tolerance_if_more_stolen_time_does_no_harm():
    tolerances = msgspec.structs.replace(TWO.tolerances, step_time=0.3)
    case = msgspec.structs.replace(TWO, tolerances=tolerances)

    disturbance = find_disturbance(case.id, {case.id: measured(case, 60, stolen=0.5)})

    assert str(disturbance).endswith("; up to 30 % does no harm")


def test_the_ranks_own_use_of_a_quota_is_no_part_of_their_cpu_time():
    finding = make_finding(TWO, Outcome.PASS, metric=CPU_TIME.name)

    assert with_disturbance(finding, {TWO.id: measured(TWO, 0, own_quota=0.5)}) is finding


@pytest.mark.parametrize("cause", ["foreign", "stolen"])
def test_without_a_witness_the_sentence_names_no_clean_steps(cause):
    assert found(None, **{cause: 0.5}).causes[0].endswith(("top)", "machines"))


def test_other_causes_have_no_remark_on_clean_steps():
    assert "clean" not in str(found(0, quota=0.5))
