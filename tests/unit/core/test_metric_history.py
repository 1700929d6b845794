"""What the stored sessions of a case show of a metric: its level, its spread and its newest run."""

from __future__ import annotations

import datetime
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.baseline import Rebaseline, by_half_day
from ddp_perf.core.verdict import Outcome
from tests.builders import make_case, make_case_baseline, make_session

START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)
OUTCOMES = {"R": Outcome.REGRESSION, "S": Outcome.SUSPECT, "I": Outcome.IMPROVEMENT}


def at(hours):
    return (START + datetime.timedelta(hours=hours)).isoformat()


def session(hours, step_s=0.01, outcome=".", **figures):
    """Return a session of two launches; the outcome is that of its step time, or "." for none."""
    verdicts = {"step_time": OUTCOMES[outcome]} if outcome in OUTCOMES else {}
    made = make_session([step_s, 3 * step_s], **figures)
    return msgspec.structs.replace(made, date=at(hours), verdicts=verdicts)


def accepted(hours):
    return Rebaseline(date=at(hours), commit=None, reason="meant", ratio=1.0)


def history(*sessions, log=()):
    return make_case_baseline(make_case(), *sessions, log=log).history("step_time")


def days_of(sessions):
    begun = [datetime.datetime.fromisoformat(session.date) - START for session in sessions]
    return [since.days for since in begun]


def daily(outcomes):
    return [session(24 * day, outcome=outcome) for day, outcome in enumerate(outcomes)]


WITHOUT_ENERGY = [session(24 * day, 0.01 * day) for day in range(1, 6)]
WITH_ENERGY = [session(24 * day, 0.1, energy=float(day)) for day in range(6, 13)]
STORED = make_case_baseline(make_case(), *WITHOUT_ENERGY, *WITH_ENERGY)


def test_the_reference_is_the_first_five_sessions():
    assert STORED.reference("step_time") == tuple(WITHOUT_ENERGY)
    assert STORED.level("step_time") == pytest.approx(0.06)  # the median of launches 0.03 and 0.09


def test_the_reference_of_a_metric_that_was_added_later_begins_later():
    assert STORED.sessions_with("energy") == tuple(WITH_ENERGY)
    assert STORED.reference("energy") == tuple(WITH_ENERGY[:5])
    assert STORED.level("energy") == 8.0


def test_a_metric_without_a_session_has_no_level():
    assert STORED.reference("efficiency") == ()
    assert STORED.level("efficiency") is None


@given(st.text("..RSI", max_size=12))
def test_sessions_inform_unless_they_were_off_the_level(outcomes):
    """Five sessions set the level.

    A suspect session informs if later ones, up to the next verdict, were not slower.
    """
    at_level = [m.start() for m in re.finditer(r"\.|S(?=S*[.I])", "....." + outcomes)]

    found = history(*daily("....." + outcomes))

    assert days_of(found.informing) == at_level
    assert set(found.levels) == {0}


@pytest.mark.parametrize(
    ("outcomes", "informing"),
    [
        pytest.param("R", [], id="a regression"),
        pytest.param("SS", [], id="an open run"),
        pytest.param("SSR", [], id="a confirmed run"),
        pytest.param("SS.", [5, 6, 7], id="a run that was chance"),
        pytest.param("SI", [5], id="suspect, then faster"),
        pytest.param("RR.", [7], id="mended"),
        pytest.param("I..", [6, 7], id="an improvement"),
    ],
)
def test_a_suspect_informs_again_once_a_session_shows_that_it_was_chance(outcomes, informing):
    found = history(*daily("....." + outcomes)).informing

    assert days_of(found) == [0, 1, 2, 3, 4, *informing]


@pytest.mark.parametrize(
    ("outcomes", "informing", "levels"),
    [
        pytest.param("....R", [0, 1, 2, 3, 4], [0, 0, 0, 0, -1], id="a regression"),
        pytest.param("..RRR", [0, 1, 2, 3, 4], [0, 0, -1, -1, -1], id="a run"),
        pytest.param("..RR.R", [0, 1, 2, 3, 4, 5], [0, 0, -1, -1, 0, -2], id="two runs"),
        pytest.param("..RSR", [0, 1, 2, 4], [0, 0, -1, -2], id="a suspect between them"),
        pytest.param("..SS", [0, 1], [0, 0], id="suspects alone"),
        pytest.param("..I", [0, 1, 2], [0, 0, 0], id="an improvement"),
        pytest.param("....I.", [0, 1, 2, 3, 5], [0] * 5, id="five without the improvement"),
        pytest.param("R", [0], [-1], id="no other"),
        pytest.param("....RR.", [0, 1, 2, 3, 6], [0] * 5, id="until five sessions set the level"),
    ],
)
def test_runs_of_regressions_inform_around_levels_of_their_own_while_few_set_the_level(
    outcomes, informing, levels
):
    found = history(*daily(outcomes))

    assert days_of(found.informing) == informing
    assert list(found.levels) == levels
    assert found.in_force == 0
    assert days_of(found.reference) == [
        day for day, number in zip(informing, levels, strict=True) if number == 0
    ]


def test_runs_of_an_hour_inform_as_one_session_of_their_level():
    slow = [session(24 + hours, 0.02, "R") for hours in (0, 1, 2)]

    found = history(session(0), *slow)

    assert [len(one.launches) for one in found.informing] == [2, 6]
    assert found.levels == (0, -1)


def test_regressions_before_an_accepted_change_inform_nothing():
    found = history(*daily(".RR..R"), log=(accepted(24 * 3),))

    assert days_of(found.informing) == [0, 3, 4, 5]
    assert found.levels == (0, 1, 1, -1)
    assert found.in_force == 1


@given(st.text("..RSI", max_size=12))
def test_a_case_has_regressed_since_a_regression_that_no_session_has_cleared(outcomes):
    newest = re.search(r"R[RS]*$|$", outcomes)

    found = history(*daily("." + outcomes))

    assert days_of(found.regressed) == list(range(newest.start() + 1, len(outcomes) + 1))
    assert (found.slow_down is None) is (not found.regressed)


def test_the_slow_down_is_that_of_the_first_three_sessions_that_have_regressed():
    """Later ones may have stayed red only because they could not decide."""
    factors = (1.0, 1.0, 1.0, 1.04, 1.12, 1.1, 1.2, 1.01, 1.0, 1.0)
    sessions = [
        session(24 * day, 0.01 * factor, outcome)
        for day, (factor, outcome) in enumerate(zip(factors, "...SRRRRRR", strict=True))
    ]

    assert [history(*sessions[:count]).slow_down for count in (5, 6, 7, 8, 10)] == [
        pytest.approx(factor) for factor in (1.12, 1.11, 1.12, 1.12, 1.12)
    ]


@given(st.text("..RSI", max_size=12))
def test_the_newest_run_is_the_red_and_suspect_sessions_at_the_end(outcomes):
    run = re.search(r"[RS]*$", outcomes).group()

    found = history(*daily("." + outcomes)).newest_run

    assert (
        "".join(
            next(k for k, v in OUTCOMES.items() if v is one.verdicts["step_time"]) for one in found
        )
        == run
    )


def test_the_newest_run_begins_after_the_newest_accepted_change():
    sessions = daily("...RRRSR")

    assert days_of(history(*sessions, log=(accepted(24 * 5),)).newest_run) == [5, 6, 7]


def test_the_verdict_of_another_metric_does_not_count():
    slow = msgspec.structs.replace(session(24), verdicts={"tail": Outcome.REGRESSION})

    assert days_of(history(session(0), slow, session(48)).informing) == [0, 1, 2]


def test_regressions_and_improvements_do_not_set_the_level():
    sessions = [
        session(24 * day, 0.01 * factor, outcome)
        for day, (factor, outcome) in enumerate(
            zip((3, 9, 4, 5, 6, 2, 0.5), ".R..I..", strict=True)
        )
    ]

    # Of 3, 4, 5, 2 and 0.5; with 9 or 6 it is 0.08.
    assert history(*sessions).level == pytest.approx(0.06)


@given(st.lists(st.floats(0, 30), min_size=1, max_size=10))
def test_sessions_of_a_half_day_count_as_one_with_all_their_launches(gaps):
    hours = [round(sum(gaps[:i]), 3) for i in range(len(gaps))]
    expected = [hours[0]]
    for hour in hours:
        if hour - expected[-1] >= 12:
            expected.append(hour)

    found = history(*(session(hour, 0.01 + 0.001 * i) for i, hour in enumerate(hours))).informing

    assert [one.date for one in found] == [at(hour) for hour in expected]
    launches = [launch["step_time"] for one in found for launch in one.launches]
    assert launches == [f * (0.01 + 0.001 * i) for i in range(len(hours)) for f in (1, 3)]


def test_the_terms_of_merged_sessions_stay_with_their_launches():
    with_terms = msgspec.structs.replace(session(1), terms=({"forward": 1.0}, {"forward": 2.0}))

    (merged,) = history(session(0), with_terms).informing

    assert merged.terms == ({}, {}, {"forward": 1.0}, {"forward": 2.0})


def test_an_accepted_change_begins_a_level_that_has_its_own_reference():
    sessions = [session(24 * day, 0.01 if day < 4 else 0.02) for day in range(11)]

    found = history(*sessions, log=(accepted(24 * 4),))

    assert found.levels == (*[0] * 4, *[1] * 7)
    assert found.in_force == 1
    assert days_of(found.informing) == list(range(11))
    assert days_of(found.at_level) == [4, 5, 6, 7, 8, 9, 10]
    assert days_of(found.reference) == [4, 5, 6, 7, 8]
    assert found.level == pytest.approx(0.04)


def test_several_accepted_changes_begin_several_levels():
    found = history(*daily("......"), log=(accepted(24 * 2), accepted(24 * 5)))

    assert found.levels == (0, 0, 1, 1, 1, 2)
    assert found.in_force == 2
    assert days_of(found.at_level) == [5]


def test_an_accepted_change_of_the_same_half_day_is_not_merged_with_the_session_before():
    found = history(session(0), session(1), session(2, 0.02), session(3, 0.02), log=(accepted(2),))

    assert [len(one.launches) for one in found.informing] == [4, 4]
    assert found.levels == (0, 1)
    assert found.level == pytest.approx(0.04)


def test_accepting_with_no_older_session_left_leaves_one_level_which_is_in_force():
    found = history(session(24), session(48), log=(accepted(24),))

    assert (found.levels, found.in_force) == ((1, 1), 1)


def test_a_later_accepted_change_leaves_no_session_at_the_level_in_force():
    """The metric was not measured since."""
    found = history(session(0), session(24), log=(accepted(48),))

    assert (found.levels, found.in_force) == ((0, 0), 1)
    assert found.reference == ()
    assert found.level is None


def test_a_level_begins_where_the_sessions_before_it_were_off_the_level():
    """The sessions that were accepted had been red; the accepted one is the first of its level."""
    found = history(*daily("...RRR.."), log=(accepted(24 * 6),))

    assert days_of(found.informing) == [0, 1, 2, 6, 7]
    assert found.levels == (0, 0, 0, 1, 1)


def test_sessions_of_a_half_day_keep_the_node_of_each_launch_and_the_first_date_of_a_slow_node():
    unnamed, named = session(0), session(2)
    named = msgspec.structs.replace(named, nodes=("a", "b"), slow_nodes={"a": at(2), "b": at(2)})
    later = msgspec.structs.replace(named, date=at(4), slow_nodes={"b": at(4), "c": at(4)})

    (merged,) = by_half_day([unnamed, named, later])

    host = unnamed.environment.host
    assert merged.nodes == (host, host, "a", "b", "a", "b")
    assert merged.slow_nodes == {"a": at(2), "b": at(2), "c": at(4)}
    assert by_half_day([unnamed, session(2)])[0].nodes == ()
