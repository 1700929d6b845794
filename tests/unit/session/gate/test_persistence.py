"""A verdict among those before it: suspects in a row, and a regression that stays red."""

from __future__ import annotations

import datetime
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.session.gate.persistence import with_persistence
from tests.builders import (
    make_case,
    make_case_baseline,
    make_finding,
    make_session,
)

CASE = make_case()
START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)
OUTCOMES = {"R": Outcome.REGRESSION, "S": Outcome.SUSPECT, "I": Outcome.IMPROVEMENT}
ALPHA = 0.001  # three suspect sessions in a row at 1 % each
SLOWER = 1.05  # the step time of a stored session that was off the level
TOLERANCE = 0.02
REMEDIES = (
    'fix it, accept it (--save-baseline=accept --ddp-reason "…"), or expect it until a day'
    " (ddp-perf baseline ack)"
)
SUSPECT = Verdict(
    outcome=Outcome.SUSPECT, reason="+5 %", ratio=1.05, interval=(0.99, 1.11), chance=0.01
)


def at(hours):
    return (START + datetime.timedelta(hours=hours)).isoformat()


def stored(outcomes, *, hours=24.0, metric="step_time"):
    """Return a baseline with a session for each outcome, ``hours`` apart; "." is none."""
    sessions = []
    for number, outcome in enumerate(outcomes):
        slow = {metric: OUTCOMES[outcome]} if outcome in OUTCOMES else {}
        made = make_session([0.01 * (SLOWER if outcome in "RS" else 1.0)] * 3)
        sessions.append(msgspec.structs.replace(made, date=at(hours * number), verdicts=slow))
    return make_case_baseline(CASE, *sessions)


def found(
    verdict, outcomes="", *, hours=24.0, now=None, alpha=ALPHA, tolerance=TOLERANCE, **fields
):
    """Return the finding on the step time after sessions with these outcomes."""
    finding = make_finding(CASE, Outcome.PASS, tolerance=tolerance)
    finding = msgspec.structs.replace(finding, verdict=verdict)
    date = at(hours * len(outcomes) if now is None else now)
    baseline = stored(outcomes, hours=hours, **fields) if outcomes else None
    return with_persistence(finding, baseline, date=date, alpha=alpha, host=None)


def judged(*args, **fields):
    return found(*args, **fields).verdict


def open_verdict(outcome=Outcome.UNDECIDED, *, ratio=1.0, upper=1.08):
    return Verdict(outcome=outcome, reason="undecided", ratio=ratio, interval=(0.95, upper))


@pytest.mark.parametrize(
    ("outcomes", "outcome"),
    [
        pytest.param("...", Outcome.SUSPECT, id="the first"),
        pytest.param("...S", Outcome.SUSPECT, id="the second"),
        pytest.param("...SS", Outcome.REGRESSION, id="the third"),
        pytest.param("...SSS", Outcome.REGRESSION, id="the fourth"),
        pytest.param("..SS.", Outcome.SUSPECT, id="after one that was not"),
        pytest.param("..SS.S", Outcome.SUSPECT, id="a new run"),
        pytest.param("..SSIS", Outcome.SUSPECT, id="a new run after an improvement"),
    ],
)
def test_the_third_suspect_session_in_a_row_is_a_regression(outcomes, outcome):
    finding = found(SUSPECT, outcomes)

    assert finding.verdict.outcome is outcome
    assert finding.verdict.ratio == SUSPECT.ratio
    many = len(outcomes) - len(outcomes.rstrip("S")) + 1
    confirmed = finding.reason == f"suspect {many} sessions in a row; +5 %"
    assert confirmed is (outcome is Outcome.REGRESSION)


@pytest.mark.parametrize(
    ("chance", "alpha", "sessions"), [(0.01, 0.008, 2), (0.01, 0.001, 3), (1 / 9, 0.001, 4)]
)
def test_a_rarer_false_alarm_and_a_likelier_suspect_need_more_sessions(chance, alpha, sessions):
    verdict = msgspec.structs.replace(SUSPECT, chance=chance)

    found = [judged(verdict, "..." + "S" * before, alpha=alpha).outcome for before in range(5)]

    assert found.index(Outcome.REGRESSION) + 1 == sessions


@pytest.mark.parametrize(
    ("hours", "outcome"),
    [(0.25, Outcome.SUSPECT), (6.0, Outcome.SUSPECT), (12.0, Outcome.REGRESSION)],
)
def test_suspect_sessions_confirm_each_other_only_if_half_a_day_apart(hours, outcome):
    assert judged(SUSPECT, "SS", hours=hours).outcome is outcome


def test_a_rerun_of_the_same_hour_neither_confirms_nor_is_lost():
    """Two suspect sessions a day apart, each run again at once, and a third one."""
    dates = [at(hours) for hours in (0, 24, 48, 48.1, 72, 72.1)]
    sessions = [
        msgspec.structs.replace(session, date=date)
        for session, date in zip(stored("..SSSS").sessions, dates, strict=True)
    ]
    finding = msgspec.structs.replace(make_finding(CASE, Outcome.PASS), verdict=SUSPECT)

    def outcome(now):
        before = make_case_baseline(CASE, *(s for s in sessions if s.date < now))
        found = with_persistence(finding, before, date=now, alpha=ALPHA, host=None)
        return found.verdict.outcome

    assert [outcome(at(hours)) for hours in (48.1, 72, 72.1, 96)] == [
        *[Outcome.SUSPECT] * 3,
        Outcome.REGRESSION,
    ]


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.SUSPECT}))
def test_only_a_suspect_is_confirmed(outcome):
    verdict = Verdict(outcome=outcome, reason="because")

    assert judged(verdict, "...SSSS") is verdict


def test_the_suspects_of_another_metric_confirm_nothing():
    assert judged(SUSPECT, "...SSS", metric="tail") is SUSPECT


@pytest.mark.parametrize("outcome", [one for one in Outcome if one.is_open])
@pytest.mark.parametrize("before", [".....R", ".....RR", ".....RS", ".....SSR", ".....RSSS"])
def test_a_case_that_is_red_stays_red_while_sessions_are_undecided(before, outcome):
    finding = found(open_verdict(outcome), before)

    assert finding.verdict.outcome is Outcome.REGRESSION
    since = at(24 * before.index("R"))[:10]
    assert finding.reason == (
        f"slower since {since}, and not shown to be fixed; {REMEDIES}; this session: undecided"
    )


@pytest.mark.parametrize("before", ["...R.", "...RI", "....", "...SS"])
def test_an_undecided_session_is_red_only_right_after_red_ones(before):
    verdict = open_verdict()

    assert judged(verdict, before) is verdict


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.IMPROVEMENT])
def test_a_session_that_passes_clears_a_red_case(outcome):
    verdict = Verdict(outcome=outcome, reason="fine", ratio=1.0, interval=(0.98, 1.02))

    assert judged(verdict, "...RRR") is verdict


@pytest.mark.parametrize(("upper", "red"), [(1.049, False), (1.051, True)])
def test_an_undecided_session_that_rules_out_the_old_slow_down_is_not_red(upper, red):
    """The red sessions were 5 % slower than the level."""
    verdict = judged(open_verdict(upper=upper), "...RR")

    assert (verdict.outcome is Outcome.REGRESSION) is red


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.UNDECIDED])
@pytest.mark.parametrize(("ratio", "red"), [(0.97, False), (1.016, False), (1.017, True)])
def test_only_a_session_with_a_third_of_the_slow_down_at_most_shows_a_mend(ratio, red, outcome):
    verdict = judged(open_verdict(outcome, ratio=ratio, upper=1.04), "...RR")

    assert (verdict.outcome is Outcome.REGRESSION) is red


def test_a_pass_near_the_level_needs_no_interval_below_the_slow_down():
    passed = open_verdict(Outcome.PASS, ratio=1.01, upper=1.06)

    assert judged(passed, "...RR") is passed


@pytest.mark.parametrize(("ratio", "red"), [(1.026, False), (1.027, True)])
def test_a_slow_down_below_the_tolerance_counts_as_the_tolerance(ratio, red):
    """The red sessions were 5 % slower, and the tolerance is 8 %."""
    verdict = judged(open_verdict(Outcome.PASS, ratio=ratio), "...RR", tolerance=0.08)

    assert (verdict.outcome is Outcome.REGRESSION) is red


@pytest.mark.parametrize(
    "verdict",
    [
        open_verdict(Outcome.INVALID, upper=1.0),
        open_verdict(Outcome.SUSPECT, upper=1.04),
        Verdict(outcome=Outcome.UNDECIDED, reason="more slow launches", ratio=1.0),
        Verdict(outcome=Outcome.PASS, reason="fine", interval=(0.99, 1.01)),
    ],
    ids=["invalid", "suspect", "without an interval", "without a ratio"],
)
def test_a_session_that_measures_no_level_or_is_suspect_cannot_show_a_mend(verdict):
    assert judged(verdict, "...RR").outcome is Outcome.REGRESSION


def test_a_red_session_states_since_when_the_case_is_slower():
    red = Verdict(outcome=Outcome.REGRESSION, reason="+5 %", ratio=1.05)

    assert found(red, ".....SSRR").reason == (
        f"+5 %; it has been slower since 2026-01-08; {REMEDIES}"
    )
    assert judged(red, "...SS") is red
    assert judged(red, "...R.") is red


@pytest.mark.parametrize(
    ("before", "setting"),
    [
        (".", "against only 1 faster session"),
        ("....", "against only 4 faster sessions"),
        (".....", None),
    ],
)
@pytest.mark.parametrize(
    "verdict", [Verdict(outcome=Outcome.REGRESSION, reason="+5 %", ratio=1.05), open_verdict()]
)
def test_a_red_case_asks_which_sessions_are_right_while_few_set_the_level(verdict, before, setting):
    finding = found(verdict, before + "R")

    assert finding.verdict.outcome is Outcome.REGRESSION
    since = f"slower since {at(24 * len(before))[:10]}"
    doubt = f" ({setting}; if the later ones are right, accept them)" if setting else ""
    assert re.search(rf"{re.escape(since + doubt)}(;|, and) ", finding.reason)


@pytest.mark.parametrize(
    ("verdict", "before", "by_itself"),
    [
        pytest.param(open_verdict(), "...RR", Outcome.UNDECIDED, id="still red"),
        pytest.param(open_verdict(Outcome.INVALID), "...RR", Outcome.INVALID, id="not measured"),
        pytest.param(SUSPECT, "...SS", Outcome.SUSPECT, id="confirmed"),
        pytest.param(
            Verdict(outcome=Outcome.REGRESSION, reason="+5 %", ratio=1.05),
            "...RR",
            None,
            id="red by itself",
        ),
    ],
)
def test_a_red_finding_has_the_outcome_of_the_session_by_itself(verdict, before, by_itself):
    """It asks for no more launches, and no disturbance excuses it."""
    verdict = msgspec.structs.replace(verdict, more_launches=7, likely_launches=9)

    finding = found(verdict, before)

    assert finding.verdict.outcome is Outcome.REGRESSION
    assert finding.by_itself is by_itself
    assert (finding.verdict.more_launches, finding.verdict.likely_launches) == (None, None)
    assert finding.excuse is None


def test_a_case_that_was_never_stored_has_no_sessions_before_it():
    assert judged(SUSPECT) is SUSPECT


@given(st.text("PFRS", min_size=1, max_size=25))
def test_over_a_series_a_case_is_red_from_a_regression_until_a_pass(sessions):
    """P passes, F is open, R is a regression and S suspect by itself."""
    alone = {
        "P": Verdict(outcome=Outcome.PASS, reason="", ratio=1.0, interval=(0.98, 1.02)),
        "F": open_verdict(),
        "R": Verdict(outcome=Outcome.REGRESSION, reason="", ratio=1.05, interval=(1.03, 1.07)),
        "S": SUSPECT,
    }
    red, run, history = False, 0, "..."
    for session in sessions:
        run = run + 1 if session == "S" else 0
        red = session == "R" or run >= 3 or (red and session != "P")

        outcome = judged(alone[session], history).outcome

        assert (outcome is Outcome.REGRESSION) is red
        history += "R" if red else "S" if session == "S" else "."


def test_a_metric_that_older_sessions_lack_altogether_is_not_red():
    finding = make_finding(CASE, Outcome.NO_BASELINE, metric="energy")

    assert with_persistence(finding, stored("R"), date=at(48), alpha=ALPHA, host=None) is finding
