"""Several processes write one history at the same time, and every stored session is there once."""

from __future__ import annotations

import collections
import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_perf.history.store import HistoryStore
from tests.databases import KINDS, empty_database

ROOT = Path(__file__).parents[2]
WRITERS, SESSIONS, CASES = 4, 60, 20  # 1,200 results each
KILLED_AFTER = 20

WRITER = f"""
import sys
from ddp_perf.history.records import SessionRecord
from ddp_perf.history.store import HistoryStore
from tests.builders import make_case
from tests.recorded_sessions import make_recorded_session

url, host = sys.argv[1:]
store = HistoryStore(url)  # all of them make the tables at once
cases = [make_case(id=f"case-{{number}}") for number in range({CASES})]
for session in range({SESSIONS}):
    sessions = [make_recorded_session(case, session, 0.01, host=host) for case in cases]
    whole = tuple(case for record in sessions for case in record.cases)
    store.append([SessionRecord(info=sessions[0].info, cases=whole)])
    print(sessions[0].info.date, flush=True)
"""


@pytest.fixture(params=KINDS)
def url(request, tmp_path):
    with empty_database(request.param, tmp_path) as url:
        yield url


def start(url, host):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, host], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def stored(url):
    """Return the number of entries of each case of each session, by host, date and case."""
    found = collections.defaultdict(collections.Counter)
    with contextlib.closing(HistoryStore(url, create=False)) as store:
        for case in store.cases():
            for session in store.series(case, "step_time").sessions:
                info = session.session
                found[info.environment.host, info.date][case.case_id] += 1
    return found


def test_four_writers_lose_no_session_if_another_is_killed(url):
    writers = {f"host-{number}": start(url, f"host-{number}") for number in range(WRITERS)}
    acknowledged = {host: [] for host in writers}
    victim = writers["host-0"]
    for line in victim.stdout:
        acknowledged["host-0"].append(line.strip())
        if len(acknowledged["host-0"]) == KILLED_AFTER:
            victim.send_signal(signal.SIGKILL)
    for host, writer in writers.items():
        rest, _ = writer.communicate(timeout=120)
        acknowledged[host] += rest.split()
        assert writer.returncode == (-signal.SIGKILL if writer is victim else 0)
    assert all(len(acknowledged[host]) == SESSIONS for host in writers if host != "host-0")
    assert KILLED_AFTER <= len(acknowledged["host-0"]) < SESSIONS

    found = stored(url)
    for host, dates in acknowledged.items():
        for date in dates:
            assert found[host, date] == {f"case-{number}": 1 for number in range(CASES)}
    # Beyond them there is at most the one session whose answer the killed writer did not see,
    # and that is whole.
    assert len(found) - sum(map(len, acknowledged.values())) in (0, 1)
    assert {tuple(sorted(cases.values())) for cases in found.values()} == {(1,) * CASES}
