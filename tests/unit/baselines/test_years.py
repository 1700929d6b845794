"""A baseline stays small for years: a session a day, each by the append of the store."""

from __future__ import annotations

import difflib
import functools

import pytest

from ddp_perf.baselines.save import INFORMING, NEWEST
from ddp_perf.core.baseline import REFERENCE_SESSIONS
from tests import years
from tests.years import DAYS, append_day, date_of

KEY = "cpu-some-2c-host"
CASES = 4  # they are thinned one by one, and each takes as much room
FEW = REFERENCE_SESSIONS + INFORMING
RED = range(DAYS - 200, DAYS)  # the slow-down that nobody mended


@functools.cache
def year_of_sessions(red=range(0)):
    return years.year_of_sessions(red, cases=CASES)


def lines_of(path):
    """The lines of a file; JSON puts a comma behind a line that was the last one."""
    return [line.rstrip(",") for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("red", [range(0), RED], ids=["quiet", "red for 200 days"])
def test_a_year_of_sessions_of_20_cases_is_under_a_megabyte(store, stored, red):
    baseline = year_of_sessions(red)

    path = stored(baseline)

    assert path.stat().st_size < 1e6 * CASES / 20
    assert len(baseline.cases) == CASES
    assert store.load(KEY) == baseline


def test_a_quiet_year_leaves_the_reference_and_the_newest_thirty():
    days = [*range(REFERENCE_SESSIONS), *range(DAYS - INFORMING, DAYS)]

    for case in year_of_sessions().cases.values():
        assert [session.date for session in case.sessions] == [date_of(day) for day in days]
        assert [bool(session.terms) for session in case.sessions] == [day < 5 for day in days]


@pytest.mark.slow
def test_a_slow_down_of_200_days_keeps_what_informs_and_its_first_days():
    for case in year_of_sessions(RED).cases.values():
        kept = {session.date for session in case.sessions}
        informing = range(RED.start - INFORMING, RED.start)  # the step time
        first = RED[:3]  # they state how much slower it is
        others = range(DAYS - INFORMING, DAYS)  # they inform the other metrics
        assert kept == {date_of(day) for day in (*range(5), *informing, *first, *others)}
        assert len(kept) < REFERENCE_SESSIONS + 2 * INFORMING + NEWEST


def test_the_diff_of_a_day_has_the_lines_of_the_new_session_and_of_the_dropped_one(stored):
    before = year_of_sessions()
    old = lines_of(stored(before))

    lines = lines_of(stored(append_day(before, DAYS, cases=CASES)))

    diff = list(difflib.unified_diff(old, lines, n=0))[2:]
    added = sum(line.startswith("+") for line in diff)
    removed = sum(line.startswith("-") for line in diff)
    of_a_session = 14
    assert (added, removed) == (CASES * of_a_session, CASES * of_a_session)
    dates = [line for line in diff if '"date"' in line]
    assert len(dates) == 2 * CASES
    assert {line[0] + line.split('"')[3] for line in dates} == {
        "+" + date_of(DAYS),
        "-" + date_of(DAYS - INFORMING),
    }
