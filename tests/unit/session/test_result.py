"""A suite's result answers by case and metric, and says which cases stayed open."""

from __future__ import annotations

from ddp_perf.core.verdict import Outcome
from tests.builders import make_case, make_finding, make_result

A, B, C = (make_case(id=name) for name in "abc")


def test_a_finding_is_found_by_case_and_metric():
    tail = make_finding(A, Outcome.PASS, metric="tail")
    result = make_result([], findings=(make_finding(A, Outcome.PASS), tail))

    assert result.finding("a", "tail") is tail
    assert result.finding("a", "efficiency") is None
    assert result.finding("b", "tail") is None


def test_a_case_is_undecided_by_any_of_its_metrics_and_counted_once():
    findings = (
        make_finding(B, Outcome.INVALID),
        make_finding(B, Outcome.INCONCLUSIVE, metric="tail", nights=3),
        make_finding(A, Outcome.PASS),
        make_finding(A, Outcome.INCONCLUSIVE, metric="tail", nights=3),
        make_finding(C, Outcome.SUSPECT),
        make_finding(C, Outcome.NO_BASELINE, metric="tail"),
    )

    assert make_result([], findings=findings).undecided() == ["a", "b"]


def test_a_case_that_waits_for_its_first_nights_is_not_undecided():
    """No machine could decide it yet, so it does not say that this one cannot gate."""
    few = make_finding(A, Outcome.INCONCLUSIVE, nights=2)
    disturbed = make_finding(B, Outcome.INVALID, nights=2)

    assert make_result([], findings=(few, disturbed)).undecided() == ["b"]
