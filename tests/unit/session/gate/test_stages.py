"""The stages of the gate after the rule: their order, which decides what excuses what."""

from __future__ import annotations

import msgspec

from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_again import CONCLUDING, conclude_findings
from ddp_perf.session.gate.judge_suite import COMPARED, JudgingContext
from tests.builders import (
    make_acknowledgement,
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_finding,
    make_session,
)

CASE = make_case()


def test_the_order_of_the_stages():
    assert list(COMPARED) == [
        "a ratio is worse only if its numerator is",
        "a host that does not fit its pool is INVALID",
        "nodes that were measured one by one are named",
        "a slower clock excuses what it explains",
        "disturbed launches decide nothing",
    ]
    assert list(CONCLUDING) == [
        "red stays red until it is fixed, and suspects in a row are red",
        "sessions without a figure are counted",
        "what somebody acknowledged is expected until its day",
        "times of a case that rotates fail nothing",
    ]


def test_an_undecided_session_of_a_red_case_is_red_first_and_then_expected():
    """In the other order it would be red, though somebody expects that."""
    red = {"step_time": Outcome.REGRESSION}
    slow = msgspec.structs.replace(make_session([0.02], day=2), verdicts=red)
    stored = make_case_baseline(CASE, make_session([0.01]), slow)
    known = make_acknowledgement(CASE, until="2026-02-01")
    context = JudgingContext(
        baseline=make_baseline({CASE.id: stored}, acknowledged=(known,)),
        baseline_path="baselines/x.json",
        environment=make_environment(),
        alpha=0.01,
    )
    undecided = make_finding(CASE, Outcome.UNDECIDED)

    (found,) = conclude_findings([undecided], context, "2026-01-03T03:04:05+00:00")

    assert (found.verdict.outcome, found.by_itself) == (Outcome.REGRESSION, Outcome.UNDECIDED)
    assert found.is_expected
