"""A SUSPECT becomes a REGRESSION only if the session before was suspect too."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_suite import JudgingContext, confirm_suspects, judge_suite
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_environment,
    make_measurement,
    make_session,
)

CASE, _ = make_cases(tolerances={"step_time": 0.05})
JITTER = (1.0, 1.002, 0.998, 1.001, 0.999)
# Step times of sessions that differ by 2 %, in units of 10 ms.
RESTLESS = (
    *(1.004, 0.99, 0.992, 0.952, 1.036, 1.023, 0.993, 1.016, 1.006, 0.989),
    *(1.02, 1.005, 0.972, 0.981, 0.99, 1.011, 1.014, 0.999, 1.017, 0.988),
)
SUSPECT = 1.065


def launches(level):
    return [0.010 * level * factor for factor in JITTER]


def case_baseline(levels):
    sessions = [make_session(launches(level), day=day) for day, level in enumerate(levels, start=1)]
    return make_case_baseline(CASE, *sessions)


def findings(*newest, stored=RESTLESS, current=SUSPECT, beside=()):
    """Those of the case by metric, after the sessions ``stored`` and then ``newest``; ``beside``:
    levels of the sessions of other cases.
    """
    cases = {CASE.id: case_baseline([*stored, *newest])}
    cases |= {f"other {number}": case_baseline(levels) for number, levels in enumerate(beside)}
    measured = {CASE.id: make_measurement(CASE, launches(current))}
    context = JudgingContext(
        baseline=make_baseline(cases),
        baseline_path="baselines/x.json",
        environment=make_environment(),
        alpha=0.001,
    )
    found = judge_suite(measured, summaries_of(measured), context)
    confirmed = confirm_suspects(found, {CASE.id: CASE}, context)
    assert [finding.metric for finding in confirmed] == [finding.metric for finding in found]
    return {finding.metric: finding for finding in confirmed}


@pytest.mark.parametrize(
    ("newest", "outcome"),
    [
        ([], Outcome.SUSPECT),
        ([SUSPECT], Outcome.REGRESSION),
        ([1.07], Outcome.REGRESSION),
        ([1.052], Outcome.REGRESSION),
        ([1.04], Outcome.SUSPECT),
        ([SUSPECT, 1.0], Outcome.SUSPECT),
    ],
    ids=[
        "ordinary",
        "suspect",
        "red",
        "barely suspect",
        "slower by less than the tolerance",
        "suspect, then not",
    ],
)
def test_the_newest_stored_session_alone_confirms_a_suspect(newest, outcome):
    verdict = findings(*newest)["step_time"].verdict

    assert verdict.outcome is outcome
    confirmed = verdict.reason.startswith("suspect for the second session in a row")
    assert confirmed is (outcome is Outcome.REGRESSION)


def test_confirming_a_suspect_leaves_the_other_metrics_unchanged():
    found = findings(SUSPECT)

    assert found["tail"].verdict.outcome is found["peak_memory"].verdict.outcome is Outcome.PASS


def test_only_a_suspect_is_confirmed():
    assert findings(SUSPECT, current=1.0)["step_time"].verdict.outcome is Outcome.PASS


def test_the_first_stored_session_confirms_no_suspect():
    verdict = findings(stored=[1.0], current=1.3)["step_time"].verdict

    assert verdict.outcome is Outcome.SUSPECT


def test_the_prior_is_used_to_judge_the_newest_stored_session_too():
    """Two sessions alone do not show that the second one was slower."""
    others = [[level + 0.001 * number for level in RESTLESS] for number in range(12)]

    verdict = findings(stored=[1.0, 1.1], current=1.195, beside=others)["step_time"].verdict

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.reason.startswith("suspect for the second session in a row")
