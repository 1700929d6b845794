"""The points of a self-test, and its conclusion, from launches of known spread."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.case import Tolerances
from ddp_perf.core.verdict import Outcome
from ddp_perf.selftest.curve import LEAST_TRIALS, SelftestOutcome
from ddp_perf.selftest.trials import PERCENTS, baseline_sessions_for, power_curve
from ddp_perf.stats.interval import share_found
from tests.builders import make_environment
from tests.unit.selftest.selftest_machine import CASE, Machine, make_request, make_slowed

LONG = 15 + 35 * 12  # launches: the first baseline, and twelve sessions of each slow-down


def curve_of(timed, **request):
    return power_curve(make_request(**request), timed, make_environment())


def by_percent(curve):
    return {point.percent: point for point in curve.points}


def test_a_quiet_machine_can_gate_and_has_a_smallest_slow_down():
    curve = curve_of(Machine().launches(LONG))

    assert curve.conclusion is SelftestOutcome.CAN_GATE
    assert (
        curve.smallest_found.percent == 10
    )  # 5 % is the tolerance, and so is found every other time
    assert by_percent(curve)[3].found.found == 0
    assert 0 < by_percent(curve)[5].found.value < 0.9


def test_a_noisy_machine_cannot_gate():
    curve = curve_of(Machine(launch=0.2).launches(LONG))

    assert curve.conclusion is SelftestOutcome.CANNOT_GATE
    assert curve.smallest_found is None


def test_a_machine_without_any_observed_slow_down_cannot_gate():
    curve = curve_of(Machine(responds=0.0).launches(LONG))

    assert curve.conclusion is SelftestOutcome.CANNOT_GATE
    for percent in PERCENTS:
        low, high = by_percent(curve)[percent].slow_down.interval
        assert low < 0 < high


def test_a_machine_that_drifts_raises_false_alarms():
    """The machine slows down from launch to launch."""
    curve = curve_of(Machine(launch=0.002, level=lambda number: 1.002**number).launches(LONG))

    assert curve.conclusion is SelftestOutcome.FALSE_ALARMS
    assert curve.false_alarms.share.found == curve.false_alarms.by_metric["step_time"] > 1
    assert curve.false_alarms.chance < 0.01


def test_an_alarm_of_any_gated_metric_is_a_false_alarm():
    launches = [
        msgspec.structs.replace(
            launch,
            summary=msgspec.structs.replace(
                launch.summary,
                values={**launch.summary.values, "peak_memory": 1000.0 * 1.002**number},
            ),
        )
        for number, launch in enumerate(Machine().launches(LONG))
    ]

    curve = curve_of(launches)

    assert curve.false_alarms.by_metric.keys() == {"peak_memory"}
    assert by_percent(curve)[0].found.found == 0  # the points are of the step time
    assert curve.conclusion is SelftestOutcome.FALSE_ALARMS


def test_the_promised_rate_counts_only_judged_metrics():
    """Two ranks have five gated metrics; the efficiency needs a one-rank case."""
    assert curve_of(Machine().launches(15)).false_alarms.promised == pytest.approx(4 * 0.001)
    ungated = Tolerances(step_time=0.05, tail=None, cpu_time=None, peak_memory=None)
    alone = msgspec.structs.replace(CASE, tolerances=ungated)
    assert curve_of([], case=alone).false_alarms.promised == pytest.approx(0.001)


@pytest.mark.parametrize("count", [0, 1, 10, 15, 49, 50])
def test_too_few_launches_are_too_short_and_the_missing_ones_are_counted(count):
    launches = Machine().launches(LONG)

    curve = curve_of(launches[:count])

    assert curve.conclusion is SelftestOutcome.TOO_SHORT
    assert curve.launch_s == (2.0 if count else None)
    enough = curve_of(launches[: count + curve.missing_launches])
    assert min(point.found.trials for point in enough.points) >= LEAST_TRIALS
    assert enough.missing_launches == 0


def test_a_point_has_whole_sessions_and_every_trial_an_outcome():
    curve = curve_of(Machine(launch=0.02).launches(LONG + 17))

    assert curve.measured == LONG + 17
    for point in curve.points:
        assert sum(point.outcomes.values()) == point.found.trials
        assert point.outcomes.get(Outcome.REGRESSION, 0) == point.found.found
    assert by_percent(curve)[20].launches in range(60, 65)
    assert curve.sessions == baseline_sessions_for((15 + 2 * 60) // 5) == 8
    # Three unslowed sessions first and two in each cycle: the first three lack eight before them.
    assert by_percent(curve)[20].found.trials == 12 - 3


def test_no_session_is_judged_against_a_later_one():
    """Slow launches at the end are in no baseline; slow ones at the beginning are in the first."""
    late = Machine(level=lambda number: 1.5 if number >= LONG - 35 else 1.0)
    early = Machine(level=lambda number: 1.5 if number < 50 else 1.0)

    assert by_percent(curve_of(late.launches(LONG)))[0].found.found > 0
    faster = by_percent(curve_of(early.launches(LONG)))[0].outcomes
    assert faster.get(Outcome.IMPROVEMENT, 0) + faster.get(Outcome.UNDECIDED, 0) > 0
    assert Outcome.REGRESSION not in faster


def test_the_observed_slow_down_is_computed():
    curve = curve_of(Machine(responds=2.0, level=lambda n: 3.0 if n < 15 else 1.0).launches(LONG))

    for percent in PERCENTS:
        low, high = by_percent(curve)[percent].slow_down.interval
        assert low < 2 * percent / 100 < high
        assert high - low < 0.02
    assert by_percent(curve)[0].slow_down is None


def test_sessions_of_more_launches_need_no_new_launches():
    launches = Machine(launch=0.02).launches(LONG)

    few, many = curve_of(launches, launches=5), curve_of(launches, launches=10)

    assert few.measured == many.measured
    assert by_percent(many)[20].found.trials < by_percent(few)[20].found.trials


def test_a_slow_down_is_not_seen_if_a_larger_one_is_found_less_often():
    """An injection of 10 % slows the machine, and one of 20 % has no effect."""
    calm, deaf = Machine(), Machine(responds=0.0, seed=2)
    launches = [
        make_slowed(percent, (deaf if percent == 20 else calm).step_s(percent, number))
        for number, percent in enumerate(int(one.arm) for one in calm.launches(LONG))
    ]

    curve = curve_of(launches)

    assert by_percent(curve)[10].found.value == 1.0
    assert curve.conclusion is SelftestOutcome.CANNOT_GATE


@pytest.mark.parametrize(
    ("found", "trials", "conclusion"),
    [
        pytest.param(6, 6, SelftestOutcome.CAN_GATE, id="all of six: 54 to 100 %"),
        pytest.param(5, 5, SelftestOutcome.TOO_SHORT, id="all of five: 48 to 100 %"),
        pytest.param(8, 9, SelftestOutcome.CAN_GATE, id="52 to 100 %"),
        pytest.param(9, 10, SelftestOutcome.CAN_GATE, id="55 to 100 %"),
        pytest.param(7, 9, SelftestOutcome.TOO_SHORT, id="40 to 97 %"),
        pytest.param(0, 6, SelftestOutcome.CANNOT_GATE, id="0 to 46 %"),
        pytest.param(0, 5, SelftestOutcome.TOO_SHORT, id="0 to 52 %"),
        pytest.param(3, 9, SelftestOutcome.TOO_SHORT, id="7 to 70 %"),
    ],
)
def test_the_interval_decides_whether_the_machine_can_gate(found, trials, conclusion):
    quiet = curve_of(Machine().launches(LONG))
    points = [
        msgspec.structs.replace(point, found=share_found(found, trials))
        if point.percent == 20
        else point
        for point in quiet.points
    ]

    assert msgspec.structs.replace(quiet, points=tuple(points)).conclusion is conclusion
