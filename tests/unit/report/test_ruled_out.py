"""The line on the slow-down of the step that a session rules out."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.report.rows import ruled_out_lines
from tests.builders import (
    make_cases,
    make_excuse,
    make_failure,
    make_finding,
    make_measurement,
    make_result,
)

CASES = make_cases(batch_sizes=[64, 128])


def lines_of(*verdicts, **changes):
    """Return the lines of four cases with these findings of the step time; ``{}``: none."""
    findings = [
        make_finding(case, **verdict)
        for case, verdict in zip(CASES, verdicts, strict=True)
        if verdict
    ]
    measurements = [make_measurement(case, [0.01]) for case in CASES]
    return ruled_out_lines(make_result(measurements, findings=tuple(findings), **changes))


def bounded(upper, outcome=Outcome.PASS, **changes):
    return {"outcome": outcome, "upper": upper, "sessions": 1, **changes}


def test_a_session_that_passes_has_one_short_line_with_the_largest_bound():
    assert lines_of(*map(bounded, (1.08, 1.1512, 0.97, 1.1))) == [
        "step time: no slow-down above 16 % in 4 cases (99.5 % confidence each)"
    ]


def test_faster_cases_have_no_slow_down_at_all():
    assert lines_of(*map(bounded, (0.8, 0.9, 1.0, 0.97))) == [
        "step time: no slow-down in 4 cases (99.5 % confidence each)"
    ]


@pytest.mark.parametrize(
    ("outcome", "changes", "reason"),
    [
        (Outcome.REGRESSION, {"upper": 1.9}, "slower"),
        (Outcome.INVALID, {"upper": 1.9, "notes": make_excuse("5 of 5: heat")}, "disturbed"),
        (Outcome.INVALID, {"upper": 1.9}, "invalid"),
        (Outcome.NO_BASELINE, {}, "without a baseline"),
        (Outcome.INCOMPARABLE, {}, "not comparable"),
        (Outcome.SUSPECT, {}, "without a bound"),  # by its slow launches
    ],
)
def test_a_case_without_a_bound_is_counted_with_the_reason(outcome, changes, reason):
    without = {"outcome": outcome, **changes}

    assert lines_of(bounded(1.2), without, without, bounded(1.04)) == [
        f"step time: 2 of 4 cases are {reason}; no slow-down above 20 % in the other 2"
        " (99.5 % confidence each)"
    ]


def test_a_disturbed_session_rules_nothing_out():
    disturbed = bounded(1.1, Outcome.INVALID, notes=make_excuse("5 of 5: heat"))

    assert lines_of(disturbed, disturbed, disturbed, {"outcome": Outcome.REGRESSION}) == [
        "step time: no verdict on 4 cases; 3 are disturbed, 1 is slower"
    ]


def test_a_failed_case_is_counted():
    measured = [make_measurement(case, [0.01]) for case in CASES[:2]]
    failed = msgspec.structs.replace(measured[1], failures=(make_failure(CASES[1]),))
    finding = make_finding(CASES[0], **bounded(1.05))

    (line,) = ruled_out_lines(make_result([measured[0], failed], findings=(finding,)))

    assert line.startswith("step time: 1 of 2 cases is not judged; no slow-down above ")
    assert line.endswith(" in the other one (99.5 % confidence)")


@pytest.mark.parametrize(
    "outcome", [Outcome.NO_BASELINE, Outcome.INCOMPARABLE, Outcome.REGRESSION, Outcome.PASS]
)
def test_a_session_without_any_bound_has_no_line(outcome):
    """Nothing was compared, or all is red, or the results file is older than the bound."""
    assert lines_of(*[{"outcome": outcome}] * 4) == []
    assert lines_of({}, {}, {}, {}) == []


def test_only_times_of_a_step_have_a_line():
    """A ratio above its baseline's is no slow-down of the step."""
    others = [
        make_finding(case, metric=metric, **bounded(1.1))
        for case in CASES
        for metric in ("tail", "efficiency", "peak_memory", "energy")
    ]
    result = make_result([make_measurement(case, [0.01]) for case in CASES])

    assert ruled_out_lines(msgspec.structs.replace(result, findings=tuple(others))) == []


def test_verdicts_that_no_test_asserts_are_left_out():
    asserted = {case.id: ("step_time",) for case in CASES[:2]}
    waiting = bounded(1.3, Outcome.UNDECIDED, more_sessions=2)

    assert lines_of(bounded(1.1), bounded(1.2), waiting, waiting, asserted=asserted) == [
        "step time: no slow-down above 20 % in 2 cases (99.5 % confidence each)"
    ]
    assert lines_of(*[bounded(1.1)] * 4, asserted={}) == []
