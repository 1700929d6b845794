"""A suite's result finds findings by case and metric, and lists the undecided cases."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import Refused, Saved
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import is_never_measured, is_waiting
from tests.builders import (
    make_case,
    make_collectives,
    make_finding,
    make_measurement,
    make_result,
)

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
        make_finding(B, Outcome.UNDECIDED, metric="tail", sessions=3),
        make_finding(A, Outcome.PASS),
        make_finding(A, Outcome.UNDECIDED, metric="tail", sessions=3),
        make_finding(C, Outcome.SUSPECT),
        make_finding(C, Outcome.NO_BASELINE, metric="tail"),
    )

    appended = make_result([], findings=findings, save_mode="append")
    assert appended.undecided() == ["a", "b"]
    assert make_result([], findings=findings).undecided() == ["a", "b", "c"]  # it is forgotten


@pytest.mark.parametrize(
    ("outcome", "before", "never"),
    [(Outcome.INVALID, 3, False), (Outcome.INVALID, 4, True), (Outcome.PASS, 9, False)],
)
def test_a_metric_that_was_invalid_in_five_sessions_in_a_row_is_never_measured(
    outcome, before, never
):
    finding = msgspec.structs.replace(make_finding(A, outcome), unmeasured=before)

    assert is_never_measured(finding) is never


def test_a_case_that_waits_for_its_first_sessions_is_not_undecided():
    """No machine could decide the case yet, so it does not count against this machine."""
    few = make_finding(A, Outcome.UNDECIDED, sessions=2, assumed_sd=0.03)
    disturbed = make_finding(B, Outcome.INVALID, sessions=2, assumed_sd=0.03)

    assert make_result([], findings=(few, disturbed)).undecided() == ["b"]
    assert [is_waiting(found) for found in (few, disturbed)] == [True, False]


def test_a_case_of_a_new_level_is_undecided_if_its_spread_is_known():
    """The sessions before an accepted change still show how much sessions differ."""
    accepted = make_finding(A, Outcome.UNDECIDED, sessions=1, more_sessions=2)

    assert make_result([], findings=(accepted,)).undecided() == ["a"]
    assert not is_waiting(accepted)


def test_a_structure_of_the_same_amount_of_work_is_no_fault_of_the_machine():
    other = make_finding(A, Outcome.UNDECIDED, metric="structure")

    assert make_result([], findings=(other,)).undecided() == []


def test_a_loss_that_does_not_repeat_is_no_fault_of_the_machine():
    invalid = make_finding(A, Outcome.INVALID, metric="loss")

    assert make_result([], findings=(invalid,)).undecided() == []


def test_only_verdicts_that_a_test_asserts_are_undecided():
    findings = (
        make_finding(A, Outcome.INVALID, metric="tail"),
        make_finding(B, Outcome.INVALID),
    )
    asserted = {"a": ("step_time",), "b": ("step_time",)}

    assert make_result([], findings=findings, asserted=asserted).undecided() == ["b"]


def test_a_refused_case_that_passes_is_decided():
    passed = make_finding(A, Outcome.PASS)

    assert (
        make_result(
            [], findings=(passed,), not_saved={"a": Refused(reason="it has one")}
        ).undecided()
        == []
    )


@pytest.mark.parametrize(
    ("outcome", "mode", "settled"),
    [
        (Outcome.NO_BASELINE, "missing", True),
        (Outcome.INCOMPARABLE, "accept", True),
        (Outcome.REGRESSION, "accept", True),
        (Outcome.REGRESSION, "append", False),
        (Outcome.SUSPECT, "accept", False),
        (Outcome.PASS, "accept", False),
        (Outcome.INVALID, "append", False),
    ],
)
def test_storing_a_case_resolves_its_finding(outcome, mode, settled):
    finding = make_finding(A, outcome)
    saved = {"a": Saved(path="cpu.json", mode=mode)}
    stored = make_result([], findings=(finding,), save_mode=mode, saved=saved)

    assert stored.is_resolved(finding) is settled
    assert not make_result([], findings=(finding,), save_mode=mode).is_resolved(finding)


@pytest.mark.parametrize("outcome", [Outcome.NO_BASELINE, Outcome.INCOMPARABLE])
def test_storing_a_structure_resolves_its_finding_alone(outcome):
    exact, times = make_finding(A, outcome, metric="structure"), make_finding(A, outcome)
    result = make_result(
        [],
        findings=(exact, times),
        saved_structures={"a": "structure/ours.json"},
        not_saved={"a": Refused(reason="one launch")},
    )

    assert (result.is_resolved(exact), result.is_resolved(times)) == (True, False)
    assert (result.is_refused(exact), result.is_refused(times)) == (False, True)


@pytest.mark.parametrize(("cases", "trains"), [([A, B], True), (make_collectives(), False)])
def test_a_suite_trains_or_calls_collectives(cases, trains):
    assert make_result([make_measurement(case, [0.01]) for case in cases]).trains is trains


def test_every_verdict_counts_unless_the_tests_are_known():
    findings = (make_finding(A, Outcome.PASS), make_finding(B, Outcome.PASS, metric="tail"))
    unknown = make_result([], findings=findings)
    known = make_result([], findings=findings, asserted={"a": ("tail",), "b": ("tail",)})

    assert unknown.asserted_findings() == [*findings]
    assert known.asserted_findings() == [findings[1]]
    assert unknown.is_requested("c")
    assert not known.is_requested("c")
