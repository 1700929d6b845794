"""An acknowledged regression is expected until its date, and reported when it is over."""

from __future__ import annotations

import pytest

from ddp_perf.core.baseline import Acknowledgement
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.exact import with_acknowledgement
from tests.builders import make_acknowledgement, make_baseline, make_case, make_finding

CASE = make_case()


def state_of(outcome, *, date="2026-06-15T23:59:59+00:00", metric="step_time", **given):
    baseline = make_baseline(acknowledged=(make_acknowledgement(CASE, **given),))
    finding = with_acknowledgement(make_finding(CASE, outcome, metric=metric), baseline, date)
    return finding.known and finding.known.state


@pytest.mark.parametrize(
    ("outcome", "until", "state"),
    [
        (Outcome.REGRESSION, "2026-06-30", "expected"),
        (Outcome.REGRESSION, "2026-06-15", "expected"),  # the last day counts
        (Outcome.REGRESSION, "2026-06-14", "expired"),
        (Outcome.PASS, "2026-06-30", "over"),
        (Outcome.IMPROVEMENT, "2026-06-30", "over"),
        (Outcome.PASS, "2026-06-01", "over"),
        (Outcome.SUSPECT, "2026-06-30", None),
        (Outcome.UNDECIDED, "2026-06-30", None),
        (Outcome.INVALID, "2026-06-30", None),
        (Outcome.NO_BASELINE, "2026-06-30", None),
    ],
)
def test_the_state_follows_from_the_outcome_and_the_day(outcome, until, state):
    assert state_of(outcome, until=until) == state


@pytest.mark.parametrize(
    ("ratio", "tolerance", "interval", "state"),
    [
        pytest.param(1.10, 0.02, (1.121, 1.2), "expected", id="less than the tolerance more"),
        pytest.param(1.10, 0.02, (1.123, 1.2), "grown", id="certainly more"),
        pytest.param(1.10, 0.02, (1.05, 1.3), "expected", id="possibly more"),
        pytest.param(1.10, 0.05, (1.123, 1.2), "expected", id="a larger tolerance"),
        pytest.param(None, 0.02, (1.5, 1.6), "expected", id="an entry without a ratio"),
        pytest.param(1.10, 0.02, None, "expected", id="a verdict without an interval"),
        pytest.param(1.10, None, (1.5, 1.6), "expected", id="a metric without a tolerance"),
    ],
)
def test_a_regression_has_grown_if_it_is_certainly_slower_than_was_acknowledged(
    ratio, tolerance, interval, state
):
    baseline = make_baseline(acknowledged=(make_acknowledgement(CASE, ratio=ratio),))
    found = make_finding(CASE, Outcome.REGRESSION, tolerance=tolerance, interval=interval)

    finding = with_acknowledgement(found, baseline, "2026-06-15")

    assert finding.known.state == state
    assert finding.is_expected is (state == "expected")


def test_a_regression_that_has_grown_is_expired_after_its_last_day():
    baseline = make_baseline(acknowledged=(make_acknowledgement(CASE, ratio=1.1),))
    found = make_finding(CASE, Outcome.REGRESSION, tolerance=0.02, interval=(1.2, 1.3))

    finding = with_acknowledgement(found, baseline, "2027-01-01")

    assert finding.known.state == "expired"


def test_an_acknowledgement_applies_only_to_its_metric_and_case():
    assert state_of(Outcome.REGRESSION, metric="tail") is None
    assert state_of(Outcome.REGRESSION, case="another") is None


@pytest.mark.parametrize("outcome", [Outcome.REGRESSION, Outcome.PASS])
def test_a_finding_without_an_acknowledgement_has_no_state(outcome):
    finding = with_acknowledgement(make_finding(CASE, outcome), make_baseline(), "2026-01-01")

    assert finding.known is None


def test_an_acknowledgement_ends_at_midnight_after_its_last_day():
    given = Acknowledgement(
        case="a", metric="step_time", reason="r", until="2026-06-15", date="2026-01-01"
    )

    assert given.holds("2026-06-15T23:59:59+00:00")
    assert not given.holds("2026-06-16T00:00:00+00:00")
