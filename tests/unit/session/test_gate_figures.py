"""What a finding states beside its verdict, and which findings a session of several cases has."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.baseline import Rebaseline
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate import Bar, judge_suite
from ddp_perf.session.summaries import summaries_of
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


def stored(case, step_s, *, levels=SESSIONS, environment=None, efficiency=None, **changes):
    figures = {} if efficiency is None else {"efficiency": efficiency}
    sessions = [
        msgspec.structs.replace(
            make_session(launches(step_s * level, SKEWED), day=day, **figures),
            environment=environment or make_environment(),
        )
        for day, level in enumerate(levels, start=1)
    ]
    return make_case_baseline(case, *sessions, **changes)


def findings(*measured, cases, environment=None, **bar):
    by_id = {measurement.case.id: measurement for measurement in measured}
    bar = Bar(
        baseline=make_baseline(cases),
        baseline_path="baselines/x.json",
        environment=environment or make_environment(),
        alpha=0.001,
        **bar,
    )
    found = judge_suite(by_id, summaries_of(by_id), bar)
    return {(finding.case_id, finding.metric): finding for finding in found}


def test_value_and_baseline_are_medians_that_one_odd_launch_or_session_does_not_move():
    measured = make_measurement(ONE, launches(0.011, SKEWED))

    finding = findings(measured, cases={ONE.id: stored(ONE, 0.010)})[ONE.id, "step_time"]

    assert finding.value == pytest.approx(0.011 * 1.001)
    # The median of the first five sessions' medians, 1.003 of all six.
    assert finding.baseline == pytest.approx(0.010 * 1.002 * 1.001)


def test_the_drift_is_that_of_the_median_launch():
    entry = Rebaseline(date="2026-01-09", commit=None, reason="known", ratio=1.25)
    moved = stored(ONE, 0.010, first={"step_time": 0.008}, log=(entry,))

    finding = findings(make_measurement(ONE, launches(0.010, SKEWED)), cases={ONE.id: moved})

    assert finding[ONE.id, "step_time"].drift == pytest.approx(1.25 * 1.001)


def test_a_finding_counts_the_launches_and_the_stored_sessions_that_it_compared():
    found = findings(make_measurement(ONE, launches(0.010)), cases={ONE.id: stored(ONE, 0.010)})

    assert {metric: (f.launches, f.nights) for (_, metric), f in found.items()} == {
        "step_time": (5, 6),
        "tail": (5, 6),
        "peak_memory": (5, 6),
        "structure": (5, 0),
    }


def test_planned_looks_share_the_false_alarm_rate_of_a_verdict():
    """A look that is one of three is stricter than one that is all there is."""
    restless = stored(ONE, 0.010, levels=(1.0, 1.04, 0.96, 1.02, 0.97, 1.03))
    measured = make_measurement(ONE, launches(0.010))

    smallest = [
        findings(measured, cases={ONE.id: restless}, looks=looks)[
            ONE.id, "step_time"
        ].verdict.minimum_detectable
        for looks in ({}, {ONE.id: (5, 10, 20)}, {TWO.id: (5, 10, 20)})
    ]

    assert smallest[0] == smallest[2] < smallest[1]


def test_a_case_of_another_machine_takes_nothing_from_the_others():
    elsewhere = make_environment(accelerator_key="cpu-other-2c-host")
    cases = {
        ONE.id: stored(ONE, 0.010),
        TWO.id: stored(TWO, 0.012, efficiency=1.2, environment=elsewhere),
    }
    measured = [make_measurement(ONE, launches(0.010)), make_measurement(TWO, launches(0.012))]

    found = findings(*measured, cases=cases)

    assert {(case_id, f.verdict.outcome) for (case_id, _), f in found.items()} == {
        (ONE.id, Outcome.PASS),
        (TWO.id, Outcome.INCOMPARABLE),
    }


def test_a_case_without_a_launch_has_no_finding():
    nothing = Measurement(case=ONE, launches=(), failures=())

    assert findings(nothing, cases={ONE.id: stored(ONE, 0.010)}) == {}


def test_a_case_that_uses_its_gpu_within_reason_is_judged():
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
def test_scaling_got_worse_only_where_the_step_of_all_ranks_did(one_s, two_s, outcome):
    cases = {ONE.id: stored(ONE, 0.010), TWO.id: stored(TWO, 0.012, efficiency=1.2)}
    measured = [make_measurement(ONE, launches(one_s)), make_measurement(TWO, launches(two_s))]

    finding = findings(*measured, cases=cases)[TWO.id, "efficiency"]

    assert finding.verdict.outcome is outcome
    excused = "the one-rank leg got faster" in finding.verdict.reason
    assert excused is (outcome is Outcome.PASS)
    assert finding.verdict.ratio > 1.05
