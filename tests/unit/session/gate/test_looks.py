"""Decided verdicts are final, and an undecided one is replaced at the next look."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.measurement import Look
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.persistence import merge_findings
from tests.builders import make_cases, make_finding

ONE, TWO = make_cases(launches=5)


def open_finding(case, *, launches=5, **changes):
    return make_finding(case, Outcome.UNDECIDED, launches=launches, **changes)


@pytest.mark.parametrize("outcome", [Outcome.REGRESSION, Outcome.PASS, Outcome.IMPROVEMENT])
def test_a_first_decision_is_final(outcome):
    first = make_finding(ONE, outcome, launches=5)

    assert merge_findings([first], [make_finding(ONE, Outcome.UNDECIDED, launches=10)]) == [first]


def test_an_undecided_verdict_is_replaced_and_kept_as_an_earlier_look():
    looks = [
        [open_finding(ONE, launches=5)],
        [open_finding(ONE, launches=10, metric="step_time")],
        [make_finding(ONE, Outcome.PASS, launches=20)],
    ]

    (finding,) = merge_findings(merge_findings(looks[0], looks[1]), looks[2])

    assert finding.verdict.outcome is Outcome.PASS
    assert finding.earlier == tuple(
        Look(launches=look[0].launches, verdict=look[0].verdict) for look in looks[:2]
    )


def test_a_verdict_on_the_same_launches_is_not_a_further_look():
    first = open_finding(ONE)

    assert merge_findings([first], [open_finding(ONE)]) == [first]


def test_the_newest_structure_finding_is_kept():
    first = make_finding(ONE, Outcome.PASS, launches=5, metric="structure")
    then = make_finding(ONE, Outcome.REGRESSION, launches=10, metric="structure")

    assert merge_findings([first], [then]) == [then]


def test_a_case_that_failed_later_keeps_its_findings():
    red = make_finding(ONE, Outcome.REGRESSION, launches=5)
    other = make_finding(TWO, Outcome.PASS, launches=5)

    assert merge_findings([red, other], [msgspec.structs.replace(other)]) == [other, red]
