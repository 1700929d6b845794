"""The figures of a finding, and the findings of a session with several cases."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.baseline import Rebaseline
from ddp_perf.core.case import Tolerances
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.metric import EXACT
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_suite import JudgingContext, judge_suite
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_environment,
    make_measurement,
    make_session,
)

ONE, TWO = make_cases(tolerances={"step_time": 0.05, "efficiency": 0.05})
JITTER = (1.0, 1.002, 0.998, 1.001, 0.999)
# One launch of five, and one session of five, far off: the median leaves both out.
SKEWED = (1.0, 1.002, 0.998, 1.001, 1.04)
SESSIONS = (1.0, 1.003, 0.997, 1.002, 1.02, 1.001)


def launches(step_s, factors=JITTER):
    return [step_s * factor for factor in factors]


def stored(case, step_s, *, levels=SESSIONS, environment=None, **changes):
    """Judge a case with these changes of its launches' figures or of its baseline."""
    figures = {name: changes.pop(name) for name in ("efficiency", "energy") if name in changes}
    sessions = [
        msgspec.structs.replace(
            make_session(launches(step_s * level, SKEWED), day=day, **figures),
            environment=environment or make_environment(),
        )
        for day, level in enumerate(levels, start=1)
    ]
    return make_case_baseline(case, *sessions, **changes)


def findings(*measured, cases, environment=None, published=(), **changes):
    by_id = {measurement.case.id: measurement for measurement in measured}
    context = JudgingContext(
        baseline=make_baseline(cases, published=published),
        baseline_path="baselines/x.json",
        environment=environment or make_environment(),
        alpha=0.001,
        **changes,
    )
    found = judge_suite(by_id, summaries_of(by_id), context)
    return {(finding.case_id, finding.metric): finding for finding in found}


def test_value_and_baseline_are_medians_that_one_outlier_does_not_change():
    measured = make_measurement(ONE, launches(0.011, SKEWED))

    finding = findings(measured, cases={ONE.id: stored(ONE, 0.010)})[ONE.id, "step_time"]

    assert finding.value == pytest.approx(0.011 * 1.001)
    # The median of the first five sessions' medians, 1.003 of all six.
    assert finding.baseline == pytest.approx(0.010 * 1.002 * 1.001)


def test_the_drift_is_computed_from_the_median_launch():
    entry = Rebaseline(date="2026-01-09", commit=None, reason="known", ratio=1.25)
    moved = stored(ONE, 0.010, first={"step_time": 0.008}, log=(entry,))

    finding = findings(make_measurement(ONE, launches(0.010, SKEWED)), cases={ONE.id: moved})

    assert finding[ONE.id, "step_time"].drift == pytest.approx(1.25 * 1.001)


def test_a_finding_counts_the_launches_and_the_stored_sessions_that_it_compared():
    found = findings(make_measurement(ONE, launches(0.010)), cases={ONE.id: stored(ONE, 0.010)})

    assert {metric: (f.launches, f.sessions) for (_, metric), f in found.items()} == {
        "step_time": (5, 6),
        "tail": (5, 6),
        "cpu_time": (5, 6),
        "peak_memory": (5, 6),
        "structure": (5, 0),
        "loss": (5, 0),
    }


def test_planned_looks_share_the_false_alarm_rate_of_a_verdict():
    """One look of three is stricter than a single look."""
    restless = stored(ONE, 0.010, levels=(1.0, 1.04, 0.96, 1.02, 0.97, 1.03))
    measured = make_measurement(ONE, launches(0.010))

    smallest = [
        findings(measured, cases={ONE.id: restless}, looks=looks)[
            ONE.id, "step_time"
        ].verdict.minimum_detectable
        for looks in ({}, {ONE.id: (5, 10, 20)}, {TWO.id: (5, 10, 20)})
    ]

    assert smallest[0] == smallest[2] < smallest[1]


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"environment": make_environment(accelerator_key="other")}, Outcome.INCOMPARABLE),
        ({"work": {**TWO.work(), "batch_size": 1}}, Outcome.INCOMPARABLE),
        (None, Outcome.NO_BASELINE),
    ],
    ids=["of another machine", "of other work", "unknown"],
)
def test_a_case_that_cannot_be_compared_does_not_affect_the_others(change, outcome):
    cases = {ONE.id: stored(ONE, 0.010)}
    if change is not None:
        cases[TWO.id] = stored(TWO, 0.012, efficiency=1.2, **change)
    measured = [make_measurement(ONE, launches(0.010)), make_measurement(TWO, launches(0.012))]

    found = findings(*measured, cases=cases)

    times = {(case_id, f.verdict.outcome) for (case_id, m), f in found.items() if m not in EXACT}
    assert times == {(ONE.id, Outcome.PASS), (TWO.id, outcome)}


def test_without_a_reading_there_is_no_drift():
    case = msgspec.structs.replace(ONE, tolerances=Tolerances(energy=0.05))
    entry = Rebaseline(date="2026-01-09", commit=None, reason="known", ratio=1.25)
    moved = stored(case, 0.010, energy=1.0, first={"energy": 1.0}, log=(entry,))

    finding = findings(make_measurement(case, launches(0.010)), cases={case.id: moved})

    assert finding[case.id, "energy"].verdict.outcome is Outcome.INVALID
    assert finding[case.id, "energy"].drift is None


def test_a_case_without_a_launch_has_no_finding():
    nothing = Measurement(case=ONE, launches=(), failures=())

    assert findings(nothing, cases={ONE.id: stored(ONE, 0.010)}) == {}


def test_a_case_with_a_possible_mfu_is_judged():
    environment = make_environment(accelerator_key="h200")
    case = msgspec.structs.replace(ONE, tier="gpu")
    measured = make_measurement(case, launches(0.010), flops=10**10)
    cases = {case.id: stored(case, 0.010, environment=environment)}

    found = findings(measured, cases=cases, environment=environment)

    assert found[case.id, "step_time"].verdict.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("one_s", "two_s", "outcome"),
    [
        (0.0080, 0.0119, Outcome.PASS),
        (0.0080, 0.0105, Outcome.PASS),
        (0.0080, 0.0150, Outcome.REGRESSION),
    ],
    ids=["the step passes", "the step improved", "the step is slower, too"],
)
def test_scaling_is_worse_only_if_the_step_of_all_ranks_is_slower(one_s, two_s, outcome):
    cases = {ONE.id: stored(ONE, 0.010), TWO.id: stored(TWO, 0.012, efficiency=1.2)}
    measured = [make_measurement(ONE, launches(one_s)), make_measurement(TWO, launches(two_s))]

    finding = findings(*measured, cases=cases)[TWO.id, "efficiency"]

    assert finding.verdict.outcome is outcome
    excused = "the one-rank step got faster" in finding.reason
    assert excused is (outcome is Outcome.PASS)
    assert finding.verdict.ratio > 1.05


def test_scaling_is_undecided_if_the_step_of_all_ranks_is():
    restless = stored(TWO, 0.012, levels=(1.0, 1.2, 0.85, 1.15, 0.9, 1.1), efficiency=1.2)
    cases = {ONE.id: stored(ONE, 0.010), TWO.id: restless}
    measured = [make_measurement(ONE, launches(0.008)), make_measurement(TWO, launches(0.0119))]

    found = findings(*measured, cases=cases)

    assert found[TWO.id, "step_time"].verdict.outcome is Outcome.UNDECIDED
    assert found[TWO.id, "efficiency"].verdict.outcome is Outcome.UNDECIDED


def test_scaling_that_was_not_measured_stays_invalid_beside_a_step_that_passes():
    cases = {TWO.id: stored(TWO, 0.012, efficiency=1.2)}

    found = findings(make_measurement(TWO, launches(0.0119)), cases=cases)

    assert found[TWO.id, "step_time"].verdict.outcome is Outcome.PASS
    assert found[TWO.id, "efficiency"].verdict.outcome is Outcome.INVALID
