"""A case keeps the sessions that are read, and only the terms of its reference."""

from __future__ import annotations

import datetime
import functools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.baselines.save import INFORMING, NEWEST, NewSession, merge, thin
from ddp_perf.core.baseline import REFERENCE_SESSIONS, Rebaseline, Session
from ddp_perf.core.decomposition import TERMS
from ddp_perf.core.verdict import Outcome
from tests.builders import (
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_structure,
)

START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)
TERMS_S = dict.fromkeys(TERMS, 0.001)
METRICS = ("step_time", "energy")
ENVIRONMENT = make_environment()


def session_at(hours, *, terms=False, metrics=("step_time",), **verdicts):
    """A session of two launches so many hours after the first one."""
    return Session(
        date=(START + datetime.timedelta(hours=hours)).isoformat(),
        environment=ENVIRONMENT,
        launches=(dict.fromkeys((*metrics, "control"), 0.01),) * 2,
        terms=(TERMS_S,) * 2 if terms else (),
        overhead_s=0.3,
        verdicts=verdicts,
    )


def case_of(sessions):
    return make_case_baseline(make_case(), *sessions)


def daily(count, *, first=0, **session):
    return [session_at(24 * (first + day), **session) for day in range(count)]


def days_kept(sessions):
    """The days of the sessions that are kept, counted from 0."""
    dates = [datetime.datetime.fromisoformat(one.date) for one in thin(case_of(sessions)).sessions]
    return [(date - START).days for date in dates]


def test_the_reference_and_the_newest_sessions_that_inform_are_kept():
    assert days_kept(daily(100)) == [*range(REFERENCE_SESSIONS), *range(100 - INFORMING, 100)]


def test_nothing_is_dropped_before_there_are_more():
    assert days_kept(daily(REFERENCE_SESSIONS + INFORMING)) == list(
        range(REFERENCE_SESSIONS + INFORMING)
    )


@pytest.mark.parametrize(
    ("outcome", "first"), [(Outcome.REGRESSION, [50, 51, 52]), (Outcome.IMPROVEMENT, [])]
)
def test_sessions_off_the_level_do_not_replace_those_that_inform(outcome, first):
    off = daily(50, first=50, step_time=outcome)

    kept = days_kept([*daily(50), *off])

    informing, newest = range(50 - INFORMING, 50), range(100 - NEWEST, 100)
    assert set(kept) == {*range(REFERENCE_SESSIONS), *informing, *first, *newest}


def test_the_first_three_days_of_a_regression_are_kept_as_long_as_it_lasts():
    kept = days_kept([*daily(50), *daily(200, first=50, step_time=Outcome.REGRESSION)])

    assert [day for day in kept if day >= 50] == [50, 51, 52, *range(240, 250)]


def test_the_slow_down_is_that_of_the_first_red_sessions_however_long_it_lasts():
    slower = [1.10, 1.30, 1.20, *[1.02] * 60]
    red = [
        msgspec.structs.replace(
            one, launches=tuple({**launch, "step_time": 0.01 * factor} for launch in one.launches)
        )
        for factor, one in zip(
            slower, daily(63, first=50, step_time=Outcome.REGRESSION), strict=True
        )
    ]
    case = case_of([*daily(50), *red])

    before, after = (one.history("step_time").slow_down for one in (case, thin(case)))

    assert before == after == pytest.approx(1.20)


def test_sessions_that_are_suspect_in_a_row_are_kept_beside_those_that_inform():
    """They inform as soon as a session shows that it was chance."""
    sessions = [*daily(50), *daily(12, first=50, step_time=Outcome.SUSPECT)]
    mended = daily(1, first=62)

    assert days_kept(sessions) == [*range(REFERENCE_SESSIONS), *range(50 - INFORMING, 62)]
    assert days_kept([*sessions, *mended]) == [
        *range(REFERENCE_SESSIONS),
        *range(63 - INFORMING, 63),
    ]


def test_the_session_that_shows_what_a_suspect_one_was_is_kept():
    """Without the first REGRESSION the suspect session of day 4 would set the level, too."""
    sessions = daily(4, metrics=METRICS)
    sessions += daily(1, first=4, metrics=METRICS, step_time=Outcome.SUSPECT)
    sessions += daily(10, first=5, metrics=METRICS, step_time=Outcome.REGRESSION)
    sessions += daily(85, first=15, metrics=METRICS)

    assert days_kept(sessions) == [*range(6), 15, *range(100 - INFORMING, 100)]


def test_another_metric_that_is_slower_leaves_the_sessions_of_the_others():
    sessions = daily(50, metrics=METRICS)
    sessions += daily(50, first=50, metrics=METRICS, energy=Outcome.REGRESSION)

    kept = days_kept(sessions)

    assert set(range(100 - INFORMING, 100)) <= set(kept)  # they inform the step time
    assert set(range(50 - INFORMING, 50)) <= set(kept)  # and these the energy
    assert not set(range(53, 70)) & set(kept)


def test_sessions_that_will_set_the_level_are_kept_while_faster_ones_do():
    """Four sessions between months of faster ones set the level with a fifth that comes later."""
    faster = {"terms": True, "step_time": Outcome.IMPROVEMENT}
    sessions = [
        *daily(10, **faster),
        *daily(4, first=10, terms=True),
        *daily(50, first=14, **faster),
    ]

    grown = thin(case_of(sessions))
    last = daily(1, first=64, terms=True)
    grown = thin(msgspec.structs.replace(grown, sessions=(*grown.sessions, *last)))

    reference = grown.history("step_time").reference
    assert dates_of(reference) == dates_of([*sessions[10:14], *last])
    assert all(session.has_terms() for session in reference)


def test_a_metric_that_was_added_later_has_its_own_reference():
    kept = days_kept([*daily(20), *daily(80, first=20, metrics=METRICS)])

    assert kept == [*range(5), *range(20, 25), *range(100 - INFORMING, 100)]


def test_sessions_that_are_less_than_twelve_hours_apart_count_as_one():
    hourly = [session_at(hour) for hour in range(24 * 40)]

    kept = thin(case_of(hourly)).sessions

    assert len(kept) == 12 * (REFERENCE_SESSIONS + INFORMING)


def test_only_the_reference_keeps_its_terms():
    """The terms may have been added later than the first sessions of the case."""
    kept = thin(case_of([*daily(8), *daily(92, first=8, terms=True)])).sessions

    dates = [one.date for one in daily(5, first=8)]
    assert [one.date for one in kept if one.terms] == dates
    assert [one.date for one in kept if one.has_terms()] == dates


def test_a_reference_that_is_incomplete_keeps_all_terms():
    """A suspect session may become a part of it."""
    sessions = [*daily(3, terms=True), *daily(2, first=3, terms=True, step_time=Outcome.SUSPECT)]

    assert thin(case_of(sessions)).sessions == tuple(sessions)


def test_an_accepted_level_has_its_own_reference():
    sessions = daily(100, terms=True)
    entry = Rebaseline(date=sessions[50].date, commit=None, reason="wider", ratio=1.1)
    case = msgspec.structs.replace(case_of(sessions), log=(entry,))

    kept = thin(case)

    assert dates_of(kept.sessions) == dates_of([*sessions[50:55], *sessions[100 - INFORMING :]])
    assert [bool(session.terms) for session in kept.sessions] == [True] * 5 + [False] * INFORMING


def test_an_append_thins():
    case = make_case()
    baseline = make_baseline({case.id: case_of(daily(100))})
    (new,) = daily(1, first=100, terms=True)
    wanted = NewSession(case=case, session=new, structure=make_structure())

    appended = merge(baseline, [wanted], mode="append", reason=None).cases[case.id]

    assert len(appended.sessions) == REFERENCE_SESSIONS + INFORMING
    assert appended.sessions[-1] == new


OUTCOMES = st.sampled_from([None, Outcome.REGRESSION, Outcome.SUSPECT, Outcome.IMPROVEMENT])


def is_plain(outcome):
    return outcome is not Outcome.SUSPECT


@st.composite
def series(draw, *, metrics=METRICS, hours=(12, 24, 100), outcomes=OUTCOMES):
    """Runs of sessions that are alike; the hours between two sessions differ by run."""
    now, sessions = 0, []
    for _ in range(draw(st.integers(1, 8))):
        apart = draw(st.sampled_from(hours))
        verdicts = {metric: draw(outcomes) for metric in metrics}
        given_verdicts = {name: outcome for name, outcome in verdicts.items() if outcome}
        some = draw(st.sampled_from([metrics, metrics[:1], metrics[-1:]]))
        terms = draw(st.booleans())
        for _ in range(draw(st.integers(1, 40))):
            now += apart
            sessions.append(session_at(now, terms=terms, metrics=some, **given_verdicts))
    return sessions


# Sessions of one half-day are one by what is kept of them, so that only whole ones stay the same:
# with one metric, and without suspects.
OFTEN = series(metrics=("step_time",), hours=(1, 11, 24), outcomes=OUTCOMES.filter(is_plain))
ANY_SERIES = series() | OFTEN


def dates_of(sessions):
    return [session.date for session in sessions]


def figures_of(sessions, metric):
    return [(session.date, session.values(metric)) for session in sessions]


def red_since(case, metric):
    """The date of the first REGRESSION in the run of sessions that are slower."""
    for session in case.history(metric).newest_run:
        if session.verdicts[metric] is Outcome.REGRESSION:
            return session.date
    return None


@given(ANY_SERIES)
def test_thinning_again_changes_nothing_and_the_order_stays(sessions):
    once = thin(case_of(sessions))

    assert thin(once) == once
    assert dates_of(once.sessions) == sorted(dates_of(once.sessions))
    by_date = {session.date: session for session in sessions}
    for kept in once.sessions:
        assert kept == msgspec.structs.replace(by_date[kept.date], terms=kept.terms)


@given(ANY_SERIES)
def test_whatever_is_read_of_a_case_stays_the_same(sessions):
    case = case_of(sessions)
    thinned = thin(case)

    terms = [one.history("step_time").reference_of_terms for one in (case, thinned)]
    assert terms[0] == terms[1]
    for metric in METRICS:
        before, after = case.history(metric), thinned.history(metric)
        assert after.level == before.level
        assert figures_of(after.reference, metric) == figures_of(before.reference, metric)
        newest = figures_of(before.informing[-INFORMING:], metric)
        assert figures_of(after.informing[-INFORMING:], metric) == newest
        assert red_since(thinned, metric) == red_since(case, metric)


@given(series())
def test_the_newest_session_and_those_that_inform_are_never_dropped(sessions):
    case = case_of(sessions)
    kept = set(dates_of(thin(case).sessions))

    assert sessions[-1].date in kept
    for metric in METRICS:
        history = case.history(metric)
        assert set(dates_of(history.reference)) <= kept
        assert set(dates_of(history.informing[-INFORMING:])) <= kept


@pytest.mark.slow
@given(series())
def test_appending_one_by_one_keeps_the_same_sessions_as_thinning_at_the_end(sessions):
    def append(case, session):
        longer = msgspec.structs.replace(case, sessions=(*case.sessions, session))
        return thin(longer)

    grown = functools.reduce(append, sessions[1:], thin(case_of(sessions[:1])))

    assert grown == thin(case_of(sessions))


def on_hosts(hosts):
    """Return daily sessions of a pool, one on each of these hosts."""
    return [
        msgspec.structs.replace(
            session_at(24 * day), environment=make_environment(host=host, pool="ci")
        )
        for day, host in enumerate(hosts)
    ]


def grown_by(sessions):
    grown = case_of(sessions[:1])
    for session in sessions[1:]:
        longer = msgspec.structs.replace(grown, sessions=(*grown.sessions, session))
        grown = thin(longer)
    return grown


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param([f"runner-{day % 4}" for day in range(150)], id="four in turn"),
        pytest.param([f"runner-{day // 20}" for day in range(150)], id="replaced at times"),
        pytest.param([f"runner-{day}" for day in range(150)], id="a new one each day"),
        pytest.param(
            [f"runner-{max(0, day - 10)}" for day in range(100)], id="one, then a new one each day"
        ),
    ],
)
def test_what_is_read_of_a_pool_stays_the_same(hosts):
    sessions = on_hosts(hosts)
    every, thinned = (case.history("step_time") for case in (case_of(sessions), grown_by(sessions)))

    assert len(thinned.informing) < 80
    for host in {*hosts[-INFORMING:], "runner-new"}:
        before, after = every.seen_from(host), thinned.seen_from(host)
        assert after.of_hosts is before.of_hosts
        assert dates_of(after.reference) == dates_of(before.reference)
        newest = dates_of(before.informing[-INFORMING:])
        assert dates_of(after.informing[-INFORMING:]) == newest


def of_nodes(day, *nodes, slow=()):
    """A session of nodes, some of which were slow."""
    (session,) = daily(1, first=day)
    return msgspec.structs.replace(
        session,
        launches=session.launches[:1] * len(nodes),
        nodes=nodes,
        slow_nodes=dict.fromkeys(slow, session.date),
    )


def test_the_newest_session_of_each_slow_node_is_kept_until_the_node_is_mended():
    sessions = [
        *(of_nodes(day, "a", "b") for day in range(6)),
        of_nodes(6, "a", "b", slow=("a",)),
        of_nodes(7, "a", "b", slow=("a", "b")),
        of_nodes(8, "b", "c", slow=("c",)),
        of_nodes(9, "c", "d"),
        *(of_nodes(day, "d", "e") for day in range(10, 60)),
    ]

    assert days_kept(sessions) == [*range(REFERENCE_SESSIONS), 7, *range(60 - INFORMING, 60)]
