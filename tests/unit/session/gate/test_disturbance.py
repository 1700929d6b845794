"""Disturbed launches invalidate a verdict or add a remark to it."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import RankConditions
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.metric import EFFICIENCY, STEP_TIME
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.disturbance import find_disturbance, find_own_costs, with_disturbance
from tests.builders import (
    make_case,
    make_cases,
    make_finding,
    make_launch,
    make_measurement,
    with_conditions,
)

ONE, TWO = make_cases(tolerances={"step_time": 0.05})
QUIET = RankConditions(stolen=0.0, foreign=0.02, slow_clock=0.0, overheated=False)
BUSY = RankConditions(stolen=0.01, foreign=0.31)


def measured(case, *conditions):
    return with_conditions(make_measurement(case, [0.01] * len(conditions)), *conditions)


def disturbance(*conditions, metric=STEP_TIME.name, single=None):
    measurements = {TWO.id: measured(TWO, *conditions)}
    if single is not None:
        measurements[ONE.id] = measured(ONE, *single)
    return find_disturbance(TWO.id, measurements, metric)


def test_a_launch_that_lost_less_than_the_tolerance_is_not_disturbed():
    at_the_tolerance = RankConditions(stolen=0.05, foreign=0.05)

    assert disturbance(QUIET, at_the_tolerance) is None


def test_an_unknown_condition_does_not_disturb_a_launch():
    assert disturbance(RankConditions(), None) is None


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (RankConditions(foreign=0.31), "other processes took 31 % of the ranks' cores"),
        (RankConditions(stolen=0.125), "the hypervisor took 12 % of the ranks' cores"),
        (RankConditions(slow_clock=0.4), "clock was 40 % below their base frequency"),
        (RankConditions(overheated=True), "heat throttled the ranks' cores"),
        (RankConditions(quota=0.5), "CPU quota of the control group held back 50 %"),
        (RankConditions(memory=0.071), "processes waited for memory for 7.1 % of the time"),
        (RankConditions(foreign=1.0), "other processes took 100 % of"),
        (RankConditions(gpu_slowed=True), "heat or a weak power supply slowed a GPU down"),
        (RankConditions(gpu_shared=True), "another process computed on a rank's GPU"),
        (RankConditions(gpu_errors=True), "a GPU's memory failed beyond what ECC corrects"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value),
)
def test_every_cause_is_named_with_its_share(conditions, words):
    assert words in str(disturbance(conditions))


def test_a_disturbance_of_one_of_several_nodes_names_the_node():
    case = make_case(world_size=4, nodes=2)
    measurement = make_measurement(case, [0.01, 0.01])
    ranks = [
        msgspec.structs.replace(rank, conditions=BUSY if rank.placement.node else QUIET)
        for rank in measurement.launches[0].ranks
    ]
    launches = [msgspec.structs.replace(one, ranks=tuple(ranks)) for one in measurement.launches]
    measurement = msgspec.structs.replace(measurement, launches=tuple(launches))

    found = find_disturbance(case.id, {case.id: measurement})

    assert found.causes == (
        "other processes took 31 % of the ranks' cores (find them with top) on node 1 (b)",
    )
    assert "node" not in str(disturbance(BUSY))


def test_each_condition_has_a_description():
    """A field that is added without a description would end a session with a KeyError."""
    fields = set(RankConditions.__struct_fields__) - {"gpu_heat"}  # the clock shows what it cost
    every = RankConditions(**dict.fromkeys(fields, True))

    own = find_own_costs(TWO.id, {TWO.id: measured(TWO, every)})

    assert len(disturbance(every).causes) + len(own.split("; ")) == len(fields)


HOST = {
    "foreign": 0.3,
    "stolen": 0.3,
    "quota": 0.3,
    "memory": 0.3,
    "slow_clock": 0.3,
    "overheated": True,
}
GPU = {"gpu_slowed": True, "gpu_shared": True, "gpu_errors": True}


def paced(*host_bound, **lost):
    """Return the disturbance of a GPU case whose launches all had these conditions."""
    case = make_case(tier="gpu")
    launches = [make_launch(case, i, host_bound=bound) for i, bound in enumerate(host_bound)]
    measurement = Measurement(case=case, launches=tuple(launches), failures=())
    conditions = [RankConditions(**lost)] * len(launches)
    measurements = {case.id: with_conditions(measurement, *conditions)}
    return find_disturbance(case.id, measurements)


@pytest.mark.parametrize("cause", HOST)
def test_a_host_disturbance_does_not_count_if_the_gpu_never_waited(cause):
    found = paced(False, False, **{cause: HOST[cause]})

    assert not found.prevails
    assert str(found).endswith("; 2 of them do not count, as no GPU waited for its host")


@pytest.mark.parametrize("cause", HOST)
@pytest.mark.parametrize("host_bound", [True, None], ids=["host-bound", "unknown"])
def test_a_host_disturbance_counts_if_a_gpu_waits_for_the_host(host_bound, cause):
    assert paced(host_bound, host_bound, **{cause: HOST[cause]}).prevails


@pytest.mark.parametrize("cause", GPU)
def test_a_gpu_disturbance_always_counts(cause):
    assert paced(False, False, **{cause: GPU[cause]}).prevails
    assert "count" not in str(paced(False, False, **{cause: GPU[cause]}))


def test_more_launches_outweigh_only_the_disturbances_that_count():
    assert paced(False, True, True, foreign=0.3).more_launches == 2


def test_the_most_disturbed_rank_decides():
    measurement = make_measurement(TWO, [0.01])
    (launch,) = measurement.launches
    ranks = (launch.ranks[0], msgspec.structs.replace(launch.ranks[1], conditions=BUSY))
    launches = (msgspec.structs.replace(launch, ranks=ranks),)
    measurement = msgspec.structs.replace(measurement, launches=launches)

    assert find_disturbance(TWO.id, {TWO.id: measurement}) is not None


def test_the_share_is_the_median_of_the_disturbed_launches():
    found = disturbance(
        QUIET, RankConditions(foreign=0.2), RankConditions(foreign=0.4), RankConditions(foreign=0.3)
    )

    assert found.disturbed == 3
    assert found.causes[0].startswith("other processes took 30 %")


def test_the_most_frequent_cause_is_named_first():
    both = RankConditions(foreign=0.2, stolen=0.5)
    found = disturbance(both, RankConditions(foreign=0.2))

    assert [cause.split()[0] for cause in found.causes] == ["other", "the"]


@pytest.mark.parametrize(
    ("disturbed", "launches", "prevails"),
    [(1, 1, True), (1, 2, True), (1, 3, False), (2, 5, False), (3, 5, True), (3, 6, True)],
)
def test_a_disturbance_prevails_from_half_of_the_launches_on(disturbed, launches, prevails):
    conditions = [BUSY] * disturbed + [QUIET] * (launches - disturbed)

    assert disturbance(*conditions).prevails is prevails


def test_scaling_is_disturbed_by_either_case_of_a_round():
    single = [QUIET, BUSY, QUIET]
    scaling = {"metric": EFFICIENCY.name, "single": single}

    assert disturbance(BUSY, QUIET, QUIET, **scaling).disturbed == 2
    assert disturbance(QUIET, BUSY, QUIET, **scaling).disturbed == 1  # the same round
    assert disturbance(QUIET, QUIET, QUIET, single=single) is None


def test_a_case_without_a_single_rank_case_is_disturbed_only_by_itself():
    without = measured(make_case(id="x", single=None), BUSY)

    assert disturbance(BUSY, QUIET, metric=EFFICIENCY.name).disturbed == 1
    assert find_disturbance("x", {"x": without}, EFFICIENCY.name).disturbed == 1


FIGURES = {"ratio": 1.3, "interval": (1.2, 1.4), "minimum_detectable": 0.1, "reason": "+30 %"}
COMPARED = set(Outcome) - {Outcome.NO_BASELINE, Outcome.INCOMPARABLE}


@pytest.mark.parametrize("metric", ["step_time", "tail", "efficiency"])
@pytest.mark.parametrize("outcome", sorted(COMPARED))
def test_verdicts_on_times_are_invalid_if_disturbed_launches_prevail(outcome, metric):
    finding = make_finding(TWO, outcome, metric=metric, **FIGURES)

    found = with_disturbance(finding, {TWO.id: measured(TWO, BUSY, BUSY, QUIET)})

    assert found.verdict.outcome is Outcome.INVALID
    assert found.excuse.facts == (
        "2 of 3 launches were disturbed, because other processes took 31 % of the ranks' cores"
        " (find them with top)",
    )
    alone = f"the figures alone give {outcome.value}"
    by_figures = "+30 %" if outcome is Outcome.INVALID else alone
    assert found.reason == f"{found.excuse.facts[0]}; {by_figures}"
    assert found.verdict.ratio == 1.3


@pytest.mark.parametrize("outcome", sorted(COMPARED))
def test_a_verdict_gets_a_remark_if_few_launches_were_disturbed(outcome):
    finding = make_finding(TWO, outcome, **FIGURES)

    found = with_disturbance(finding, {TWO.id: measured(TWO, BUSY, QUIET, QUIET)})

    assert found.verdict.outcome is outcome
    assert found.reason.startswith("+30 %; 1 of 3 launches was disturbed, because other")
    assert found.excuse is None


@pytest.mark.parametrize("metric", ["peak_memory", "structure"])
def test_memory_and_structure_are_never_disturbed(metric):
    finding = make_finding(TWO, Outcome.REGRESSION, metric=metric)

    assert with_disturbance(finding, {TWO.id: measured(TWO, BUSY, BUSY)}) is finding


@pytest.mark.parametrize("outcome", [Outcome.NO_BASELINE, Outcome.INCOMPARABLE])
def test_a_finding_that_was_not_compared_stays_unchanged(outcome):
    finding = make_finding(TWO, outcome)

    assert with_disturbance(finding, {TWO.id: measured(TWO, BUSY, BUSY)}) is finding


def test_a_disturbed_single_rank_case_invalidates_only_the_scaling():
    measurements = {TWO.id: measured(TWO, QUIET, QUIET), ONE.id: measured(ONE, BUSY, BUSY)}
    findings = [
        make_finding(TWO, Outcome.PASS, metric=metric) for metric in ("step_time", "efficiency")
    ]

    outcomes = [with_disturbance(finding, measurements).verdict.outcome for finding in findings]

    assert outcomes == [Outcome.PASS, Outcome.INVALID]


def test_undisturbed_launches_leave_a_finding_unchanged():
    finding = make_finding(TWO, Outcome.PASS)

    assert with_disturbance(finding, {TWO.id: measured(TWO, QUIET, QUIET)}) is finding


def test_equally_frequent_causes_are_sorted_by_their_share():
    conditions = [
        RankConditions(stolen=0.2),
        RankConditions(stolen=0.2, foreign=0.3, slow_clock=0.1),
        RankConditions(foreign=0.4, slow_clock=0.9),
        RankConditions(stolen=0.2),
    ]

    causes = disturbance(*conditions).causes

    # Of three launches and two: of the latter, one took up to 90 %, the other up to 40 %.
    assert [cause.split(" ")[1] for cause in causes] == ["hypervisor", "cores'", "processes"]


@pytest.mark.parametrize(("disturbed", "more"), [(2, 2), (3, 4)])
def test_more_launches_would_outweigh_the_disturbed_ones(disturbed, more):
    """The undisturbed launches must become the majority of all launches."""
    conditions = [BUSY] * disturbed + [QUIET] * (3 - disturbed)
    finding = make_finding(TWO, Outcome.UNDECIDED, more_launches=7, likely_launches=9)

    verdict = with_disturbance(finding, {TWO.id: measured(TWO, *conditions)}).verdict

    assert (verdict.more_launches, verdict.likely_launches) == (more, None)
    assert not disturbance(*conditions, *[QUIET] * more).prevails
    assert disturbance(*conditions, *[QUIET] * (more - 1)).prevails


USED_UP = "the ranks used up the CPU quota themselves, which held back 45 % of the CPU time"
FILLED = "the ranks filled the memory themselves, and waited for it for 30 % of the time"


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (RankConditions(quota=0.02, own_quota=0.45), USED_UP),
        (RankConditions(memory=0.0, own_memory=0.3), FILLED),
    ],
    ids=["quota", "memory"],
)
@pytest.mark.parametrize("outcome", sorted(COMPARED))
def test_a_limit_that_the_ranks_reach_themselves_is_a_remark(outcome, conditions, words):
    finding = make_finding(TWO, outcome, **FIGURES)

    found = with_disturbance(finding, {TWO.id: measured(TWO, conditions, conditions, QUIET)})

    assert (found.verdict.outcome, found.excuse) == (outcome, None)
    assert found.reason == f"+30 %; {words}, a part of the step's cost"


def test_both_limits_are_named():
    both = RankConditions(own_quota=0.45, own_memory=0.3)

    found = find_own_costs(TWO.id, {TWO.id: measured(TWO, both)})

    assert found == f"{USED_UP}; {FILLED}"


def test_a_neighbour_makes_a_verdict_invalid_also_beside_the_ranks_own_use():
    conditions = RankConditions(quota=0.2, own_quota=0.3)
    finding = make_finding(TWO, Outcome.REGRESSION, **FIGURES)

    found = with_disturbance(finding, {TWO.id: measured(TWO, conditions, conditions)})

    assert found.verdict.outcome is Outcome.INVALID
    assert "the CPU quota of the control group held back 20 %" in found.excuse.facts[0]
    assert "used up the CPU quota themselves, which held back 30 %" in found.reason


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param([RankConditions(own_quota=0.04)] * 3, id="less than the tolerance"),
        pytest.param([RankConditions(own_quota=0.4), QUIET, QUIET], id="one launch of three"),
        pytest.param([RankConditions(quota=0.4)] * 3, id="a neighbour"),
        pytest.param([RankConditions()] * 3, id="unknown"),
    ],
)
def test_the_ranks_own_use_is_a_remark_only_if_it_slowed_the_typical_launch(conditions):
    measurements = {TWO.id: measured(TWO, *conditions)}

    assert find_own_costs(TWO.id, measurements) is None


def test_the_ranks_own_use_is_no_remark_if_no_gpu_waited_for_its_host():
    case = make_case(tier="gpu")
    measurement = make_measurement(case, [0.01], host_bound=False)
    measurements = {case.id: with_conditions(measurement, RankConditions(own_quota=0.4))}

    assert find_own_costs(case.id, measurements) is None


def test_the_ranks_own_use_in_the_one_rank_launch_concerns_only_ratios():
    measurements = {
        TWO.id: measured(TWO, QUIET),
        ONE.id: measured(ONE, RankConditions(own_quota=0.4)),
    }

    assert find_own_costs(TWO.id, measurements, EFFICIENCY.name) is not None
    assert find_own_costs(TWO.id, measurements) is None
