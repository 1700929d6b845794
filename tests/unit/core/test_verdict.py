"""The outcomes: what a test of each ends with, and what else holds of it, as one table."""

from __future__ import annotations

from typing import get_args

from ddp_perf.core.verdict import CAUSES, CauseKind, DuelOutcome, Outcome

TRAITS = (
    "is_good",
    "fails",
    "skips",
    "is_compared",
    "compares_sessions",
    "is_red",
    "is_slower",
    "is_open",
)
TABLE = {
    "REGRESSION": "fails is_compared compares_sessions is_red is_slower",
    "BAD NODE": "fails is_compared is_red",
    "MISSES TARGET": "fails is_compared is_red",
    "INCOMPARABLE": "fails",
    "NO_BASELINE": "fails",
    "INVALID": "skips is_compared compares_sessions is_open",
    "SUSPECT": "is_compared compares_sessions is_slower is_open",
    "UNDECIDED": "skips is_compared compares_sessions is_open",
    "PASS": "is_good is_compared compares_sessions",
    "IMPROVEMENT": "is_good is_compared compares_sessions",
    "MEETS TARGET": "is_good is_compared",
}


def test_the_worst_comes_first_and_each_has_its_traits():
    found = {
        outcome.value: " ".join(trait for trait in TRAITS if getattr(outcome, trait))
        for outcome in sorted(Outcome, key=lambda outcome: outcome.severity)
    }

    assert list(found.items()) == list(TABLE.items())


def test_every_outcome_and_cause_has_a_meaning():
    assert all(one.meaning for one in [*Outcome, *DuelOutcome])
    assert [*CAUSES] == [*get_args(CauseKind)]
