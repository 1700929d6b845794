"""What the sessions of a pool's hosts show: each host's own level, and how hosts differ."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from ddp_perf.core.baseline import Rebaseline
from ddp_perf.core.verdict import Outcome
from tests.builders import make_case, make_case_baseline, make_environment, make_session

START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)


def session(host, hours, step_s=0.01, *, pool="ci", **verdicts):
    made = make_session([step_s, 3 * step_s])
    return msgspec.structs.replace(
        made,
        date=(START + datetime.timedelta(hours=hours)).isoformat(),
        environment=make_environment(host=host, pool=pool),
        verdicts=verdicts,
    )


def history(hosts, *, log=(), **changes):
    """Return the history of daily sessions, one on each of the hosts, which letters name."""
    sessions = [session(host, 24 * day, **changes) for day, host in enumerate(hosts)]
    return make_case_baseline(make_case(), *sessions, log=log).history("step_time")


def hosts_of(sessions):
    return "".join(session.environment.host for session in sessions)


@pytest.mark.parametrize(
    ("stored", "host", "compared"),
    [
        pytest.param("a", "a", "a", id="the only host"),
        pytest.param("aaaa", "a", "aaaa", id="the only host, later"),
        pytest.param("aaaaaaaa", "b", "a", id="a second host"),
        pytest.param("aaaaaaaab", "b", "b", id="the second host again"),
        pytest.param("abcdefgh", "i", "abcdefgh", id="each session a new host"),
        pytest.param("abcdefgha", "a", "abcdefgh", id="hosts seldom come again"),
        pytest.param("abcd", "a", "abcd", id="no host came again"),
        pytest.param("abcdabcd", "a", "aa", id="each host came again"),
        pytest.param("abcdabcd", "e", "abcd", id="a new host"),
    ],
)
def test_a_session_is_compared_with_its_host_or_with_the_first_session_of_each(
    stored, host, compared
):
    seen = history(stored).seen_from(host)

    assert hosts_of(seen.at_level) == compared
    assert seen.of_hosts is (len(set(compared)) > 1 or compared != host * len(compared))


def test_the_sessions_of_other_hosts_inform_the_spread_around_their_own_levels():
    seen = history("abcabc").on_host("b")

    assert hosts_of(seen.informing) == "abcabc"
    assert seen.levels == (0, 2, 1, 0, 2, 1)
    assert seen.in_force == 2
    assert seen.degrees_of_freedom == 3


def test_slower_sessions_stay_below_all_levels():
    sessions = [
        session("a", 0),
        *(session(host, 24, step_time=Outcome.REGRESSION) for host in "ab"),
    ]
    seen = make_case_baseline(make_case(), *sessions).history("step_time").on_host("a")

    assert min(seen.levels) < 0
    assert [number for number in seen.levels if number >= 0] == [seen.in_force]


def test_an_accepted_level_has_first_sessions_of_its_own():
    accepted = Rebaseline(date=session("a", 60).date, commit=None, reason="meant", ratio=1.0)

    seen = history("aabbab", log=(accepted,)).across_hosts()

    assert hosts_of(seen.informing) == "abba"
    assert hosts_of(seen.at_level) == "ba"


def test_sessions_of_one_hour_are_one_on_each_host():
    sessions = [session(host, hour) for hour, host in enumerate("abab")]
    pooled = make_case_baseline(make_case(), *sessions).history("step_time").informing
    alone = [session(host, hour, pool=None) for hour, host in enumerate("abab")]
    one = make_case_baseline(make_case(), *alone).history("step_time").informing

    assert [(one.environment.host, len(one.launches)) for one in pooled] == [("a", 4), ("b", 4)]
    assert [len(one.launches) for one in one] == [8]


def test_a_slow_down_is_relative_to_the_level_of_its_host():
    sessions = [
        session(host, 24 * day, 0.01 if host == "a" else 0.02) for day, host in enumerate("aaab")
    ]
    red = session("b", 96, 0.024, step_time=Outcome.REGRESSION)

    found = make_case_baseline(make_case(), *sessions, red).history("step_time")

    assert found.slow_down == pytest.approx(1.2)
