"""The two stages of a session, against scipy's laws, the judge's own verdicts, and their rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.core.verdict import DuelOutcome, Outcome, PairedVerdict, Verdict
from ddp_perf.stats.pairs import PairedPlan, judge_pairs
from ddp_perf.stats.rule.error_rate import (
    OF_SESSION,
    rate_of_pairs,
    settled_outcome,
    suspicion,
)
from tests.judging import judge_by_figures

TOLERANCE = 0.05
DIFFERENCES = st.floats(-0.3, 0.3, allow_subnormal=False)
ERRORS = st.floats(1e-4, 0.3)
UNDECIDED = (Outcome.UNDECIDED, Outcome.SUSPECT, Outcome.INVALID)


def verdict_of(difference: float, error: float, outcome=Outcome.PASS, **changes) -> Verdict:
    """Return a verdict whose difference has a normal error."""
    low, high = np.exp(stats.norm.interval(0.99, difference, error)).tolist()
    figures = {"ratio": math.exp(difference), "interval": (low, high), "upper": high, **changes}
    return Verdict(outcome=outcome, reason="", **figures)


def pairs_of(outcome: DuelOutcome, ratio: float = 1.0, width: float = 0.01) -> PairedVerdict:
    return PairedVerdict(
        outcome=outcome, reason="", pairs=6, ratio=ratio, interval=(ratio - width, ratio + width)
    )


@given(st.floats(1e-4, 0.4), st.integers(1, 500))
def test_both_stages_together_spend_the_rate_of_the_session(rate, cases):
    assert OF_SESSION * rate + cases * rate_of_pairs(rate, cases) == pytest.approx(rate)


@pytest.mark.parametrize("cases", [0, -1])
def test_no_case_has_no_rate(cases):
    with pytest.raises(ValueError, match="at least one case"):
        rate_of_pairs(0.01, cases)


@given(DIFFERENCES, ERRORS)
def test_a_case_is_screened_by_a_one_sided_test_or_by_its_upper_bound(difference, error):
    significant = stats.norm.sf(difference / error) <= 0.1
    slower = significant and math.exp(difference) >= 1 + TOLERANCE / 2
    unclear = math.exp(stats.norm.ppf(0.995, difference, error)) >= 1 + 2 * TOLERANCE

    screened = suspicion(verdict_of(difference, error), TOLERANCE)

    assert (screened is not None) == (slower or unclear)
    if screened is not None:
        chance = stats.norm.sf(math.log(1 + TOLERANCE), difference, error)
        assert screened == pytest.approx(chance, rel=1e-6, abs=1e-12)


@given(DIFFERENCES, ERRORS, DIFFERENCES, ERRORS, st.floats(0.0, 0.01))
def test_a_regression_comes_before_all_others(difference, error, other, others_error, chance):
    red = suspicion(verdict_of(difference, error, Outcome.REGRESSION), TOLERANCE)
    suspect = verdict_of(other, others_error, Outcome.SUSPECT, chance=chance, upper=None)

    assert 0 <= suspicion(suspect, TOLERANCE) <= 1 <= red


@given(ERRORS, st.lists(DIFFERENCES, min_size=2, max_size=2).map(sorted))
def test_what_is_slower_is_more_suspicious(error, differences):
    fast, slow = (
        suspicion(verdict_of(one, error, Outcome.UNDECIDED, upper=None), TOLERANCE)
        for one in differences
    )

    assert fast <= slow


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"outcome": Outcome.INVALID}, 0.5),
        ({"outcome": Outcome.INVALID, "ratio": 1.0, "interval": (0.9, 1.1), "upper": 1.05}, 0.5),
        ({"outcome": Outcome.SUSPECT, "ratio": 1.1, "chance": 0.004}, 0.996),
        ({"outcome": Outcome.UNDECIDED}, 0.5),
        ({"outcome": Outcome.REGRESSION}, 1.5),
        ({"outcome": Outcome.REGRESSION, "ratio": 1.1, "interval": (1.1, 1.1), "upper": 1.1}, 2.0),
        ({"outcome": Outcome.PASS, "ratio": 1.03, "interval": (1.03, 1.03), "upper": 1.03}, 0.0),
        ({"outcome": Outcome.PASS, "ratio": 1.0, "interval": (1.0, 1.0), "upper": 1.0}, None),
        ({"outcome": Outcome.PASS, "ratio": 1.02, "interval": (1.02, 1.02), "upper": 1.02}, None),
        ({"outcome": Outcome.IMPROVEMENT, "ratio": 0.9, "interval": (0.8, 1.0), "upper": 1}, None),
        ({"outcome": Outcome.PASS, "ratio": 1.03, "upper": 1.05}, None),
        ({"outcome": Outcome.NO_BASELINE}, None),
        ({"outcome": Outcome.INCOMPARABLE}, None),
        ({"outcome": Outcome.MISSES_TARGET, "ratio": 1.2}, None),
        ({"outcome": Outcome.MEETS_TARGET}, None),
        ({"outcome": Outcome.BAD_NODE}, None),
    ],
)
def test_verdicts_with_special_figures(changes, expected):
    found = suspicion(Verdict(reason="", **changes), TOLERANCE)

    assert found == (None if expected is None else pytest.approx(expected))


@given(
    st.lists(
        st.lists(st.floats(0.9, 1.1), min_size=5, max_size=5),
        min_size=2,
        max_size=8,
    )
)
def test_whatever_the_judge_cannot_decide_is_screened(sessions):
    verdict = judge_by_figures(sessions[-1], sessions[:-1], tolerance=TOLERANCE, alpha=0.001)

    screened = suspicion(verdict, TOLERANCE) is not None

    if verdict.outcome in (*UNDECIDED, Outcome.REGRESSION):
        assert screened
    elif screened:
        assert verdict.ratio >= 1 + TOLERANCE / 2


@pytest.mark.parametrize(
    ("paired", "settled"),
    [
        (pairs_of(DuelOutcome.SLOWER, 1.051), Outcome.REGRESSION),
        (pairs_of(DuelOutcome.SLOWER, 1.05), Outcome.REGRESSION),
        (pairs_of(DuelOutcome.SLOWER, 1.049), Outcome.PASS),
        (pairs_of(DuelOutcome.SLOWER, 1.049, width=0.06), Outcome.UNDECIDED),
        (pairs_of(DuelOutcome.EQUIVALENT, 1.02), Outcome.PASS),
        (pairs_of(DuelOutcome.FASTER, 0.9), Outcome.IMPROVEMENT),
        (pairs_of(DuelOutcome.FASTER, 0.96), Outcome.PASS),
        (PairedVerdict(outcome=DuelOutcome.SLOWER, reason="", pairs=6), Outcome.UNDECIDED),
    ],
)
@pytest.mark.parametrize("before", [Outcome.REGRESSION, *UNDECIDED])
def test_pairs_that_decide_are_final(paired, settled, before):
    assert settled_outcome(paired, before, TOLERANCE) is settled


@pytest.mark.parametrize("before", list(Outcome))
def test_undecided_pairs_change_nothing(before):
    assert settled_outcome(pairs_of(DuelOutcome.UNDECIDED, 1.5), before, TOLERANCE) is before


@given(
    st.lists(st.floats(-0.3, 0.3, allow_subnormal=False), min_size=1, max_size=24),
    st.sampled_from(UNDECIDED),
)
def test_pairs_turn_a_case_red_only_if_they_are_slower_by_the_tolerance(logs, before):
    plan = PairedPlan(alpha=0.01, tolerance=TOLERANCE, looks=(6, 9, 14, 24))
    paired = judge_pairs(logs, plan, ended=True)

    is_red = settled_outcome(paired, before, TOLERANCE) is Outcome.REGRESSION

    slower = paired.outcome is DuelOutcome.SLOWER
    assert is_red == (slower and paired.ratio >= 1 + TOLERANCE)
