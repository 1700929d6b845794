"""The worst finding decides; what is acknowledged neither fails nor passes."""

from __future__ import annotations

import pytest

from ddp_perf.core.measurement import Known
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import Conclusion, conclude
from tests.builders import make_acknowledgement, make_cases, make_finding

ONE, TWO = make_cases()
PASSED = make_finding(ONE, Outcome.PASS)


@pytest.mark.parametrize(
    ("outcome", "conclusion"),
    [
        (Outcome.PASS, Conclusion.PASS),
        (Outcome.IMPROVEMENT, Conclusion.PASS),
        (Outcome.MEETS_TARGET, Conclusion.PASS),
        (Outcome.REGRESSION, Conclusion.REGRESSION),
        (Outcome.INCOMPARABLE, Conclusion.REGRESSION),
        (Outcome.MISSES_TARGET, Conclusion.REGRESSION),
        (Outcome.SUSPECT, Conclusion.UNDECIDED),
        (Outcome.UNDECIDED, Conclusion.UNDECIDED),
        (Outcome.INVALID, Conclusion.UNDECIDED),
        (Outcome.NO_BASELINE, Conclusion.UNDECIDED),
    ],
)
def test_one_finding_beside_a_pass_decides(outcome, conclusion):
    findings = [PASSED, make_finding(TWO, outcome)]

    assert conclude(findings, failed=False, missing=False) is conclusion


@pytest.mark.parametrize(
    ("state", "conclusion"),
    [("expected", Conclusion.UNDECIDED), ("expired", Conclusion.REGRESSION)],
)
def test_an_acknowledged_regression_does_not_fail_until_its_day(state, conclusion):
    known = Known(acknowledgement=make_acknowledgement(TWO), state=state)
    findings = [PASSED, make_finding(TWO, Outcome.REGRESSION, known=known)]

    assert conclude(findings, failed=False, missing=False) is conclusion


def test_a_case_without_a_finding_never_passes():
    assert conclude([], failed=False, missing=False) is Conclusion.UNDECIDED
    assert conclude([PASSED], failed=False, missing=True) is Conclusion.UNDECIDED
    assert conclude([PASSED], failed=True, missing=False) is Conclusion.REGRESSION
