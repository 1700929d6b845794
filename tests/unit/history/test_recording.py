"""A recorded result has every figure of complete cases, with its verdict."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import RankConditions
from ddp_perf.core.measurement import Known, Measurement
from ddp_perf.core.verdict import Outcome, Settled
from ddp_perf.history.records import record_of
from tests.builders import (
    make_acknowledgement,
    make_case,
    make_cases,
    make_failure,
    make_finding,
    make_measurement,
    make_result,
    with_conditions,
)

BUSY = RankConditions(foreign=0.31)


def figures_of(result):
    (case,) = record_of(result).cases
    return {figure.metric: figure for figure in case.figures}


def test_figure_is_the_median_of_its_launches_with_its_verdict():
    case = make_case()
    finding = make_finding(case, Outcome.SUSPECT, ratio=1.1, baseline=0.01)
    result = make_result([make_measurement(case, [0.011, 0.013, 0.012])], findings=(finding,))

    step = figures_of(result)["step_time"]

    assert (step.value, step.launches) == (0.012, (0.011, 0.013, 0.012))
    assert (step.verdict.outcome, step.verdict.ratio) == (Outcome.SUSPECT, 1.1)
    assert step.baseline == 0.01


def test_metric_that_is_not_gated_is_recorded_without_a_verdict():
    figures = figures_of(make_result([make_measurement(make_case(), [0.01])]))

    metrics = {"step_time", "tail", "cpu_time", "peak_memory"}
    assert figures.keys() == metrics | {"control", "median_step_time"}
    assert {figure.verdict for figure in figures.values()} == {None}


def test_structure_has_a_verdict_and_no_value():
    case = make_case()
    finding = make_finding(case, Outcome.REGRESSION, metric="structure")
    figures = figures_of(make_result([make_measurement(case, [0.01])], findings=(finding,)))

    assert figures["structure"].value is None
    assert figures["structure"].verdict.outcome is Outcome.REGRESSION


def test_verdict_has_its_acknowledgement_and_what_the_second_stage_found():
    case = make_case()
    given = make_acknowledgement(case, reason="the new loss is worth it")
    finding = msgspec.structs.replace(
        make_finding(case, Outcome.REGRESSION, ratio=1.1),
        known=Known(acknowledgement=given, state="expected"),
    )
    settled = Settled(reference="2026-11-01T03:00:00+00:00", pairs=12)
    result = msgspec.structs.replace(
        make_result([make_measurement(case, [0.011])], findings=(finding,)),
        settled={case.id: settled},
        job="https://ci.example/42",
    )

    verdict = figures_of(result)["step_time"].verdict

    assert verdict.acknowledged == "the new loss is worth it"
    assert verdict.settled == settled
    assert record_of(result).info.job == "https://ci.example/42"


def test_acknowledgement_that_is_over_is_none():
    case = make_case()
    given = Known(acknowledgement=make_acknowledgement(case), state="expired")
    finding = msgspec.structs.replace(make_finding(case, Outcome.REGRESSION), known=given)
    result = make_result([make_measurement(case, [0.011])], findings=(finding,))

    assert figures_of(result)["step_time"].verdict.acknowledged is None


@pytest.mark.parametrize("outcome", [Outcome.NO_BASELINE, Outcome.INCOMPARABLE])
def test_disturbed_session_is_unusable_even_without_a_baseline(outcome):
    case = make_case()
    measurement = with_conditions(make_measurement(case, [0.01, 0.02]), BUSY, BUSY)
    finding = make_finding(case, outcome)

    figures = figures_of(make_result([measurement], findings=(finding,)))

    assert "other processes took 31 %" in figures["step_time"].disturbance
    assert not figures["step_time"].is_sound
    assert figures["peak_memory"].is_sound


def test_session_with_few_disturbed_launches_is_usable():
    measurement = with_conditions(make_measurement(make_case(), [0.01] * 3), BUSY, None, None)

    assert figures_of(make_result([measurement]))["step_time"].is_sound


def test_disturbed_single_rank_run_makes_only_efficiency_unusable():
    one, two = make_cases()
    measurements = [
        with_conditions(make_measurement(one, [0.01] * 2), BUSY, BUSY),
        make_measurement(two, [0.01] * 2),
    ]

    _, record = record_of(make_result(measurements)).cases

    sound = {figure.metric: figure.is_sound for figure in record.figures}
    assert (sound["step_time"], sound["efficiency"]) == (True, False)


def test_case_with_a_failed_launch_is_left_out():
    case = make_case()
    measurement = msgspec.structs.replace(
        make_measurement(case, [0.01]), failures=(make_failure(case),)
    )

    assert record_of(make_result([measurement])).cases == ()


def test_record_has_the_date_and_the_environment():
    result = make_result([make_measurement(make_case(), [0.01])], injections=("compute:5%",))
    info = record_of(result).info

    assert (info.suite, info.date, info.environment) == (
        result.suite,
        result.date,
        result.environment,
    )
    assert info.injections == ("compute:5%",)
    assert info.started == "2026-01-02T03:04:05+00:00"


def test_session_with_a_further_case_keeps_its_identity():
    one, two = (make_measurement(make_case(id=name), [0.01]) for name in ("a", "b"))

    assert record_of(make_result([one])).info == record_of(make_result([one, two])).info


def test_session_without_a_launch_has_no_start():
    nothing = Measurement(case=make_case(), launches=(), failures=())
    later = make_measurement(make_case(id="later"), [0.01])

    assert record_of(make_result([nothing])).info.started == ""
    assert record_of(make_result([nothing, later])).info.started == "2026-01-02T03:04:05+00:00"
