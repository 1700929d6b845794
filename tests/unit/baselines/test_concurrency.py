"""Two writers lose no session, and a killed writer leaves the old file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ddp_perf.baselines.store import BaselineStore
from tests.builders import make_baseline

ROOT = Path(__file__).parents[3]
KEY = "cpu-some-2c-host"
UPDATES = 10

WRITER = """
import sys
from pathlib import Path
from ddp_perf.baselines.save import NewSession, merge
from ddp_perf.baselines.store import BaselineStore
from tests.builders import make_case, make_session, make_structure

store = BaselineStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for update in range(int(sys.argv[3])):
    session = make_session([0.01], day=update + 1, tail=float(sys.argv[2]))
    new = NewSession(case=make_case(), session=session, structure=make_structure())
    store.update(sys.argv[4], lambda now: merge(now, [new], mode="append", reason=None))
"""

OF_STRUCTURES = """
import sys
from pathlib import Path
import msgspec
from ddp_perf.baselines.store import BaselineStore
from tests.builders import make_case, make_stored_structure

store, known = BaselineStore(Path(sys.argv[1])).work, make_stored_structure(make_case())
print("ready", flush=True)
sys.stdin.readline()
for update in range(int(sys.argv[3])):
    case_id = f"{sys.argv[2]}-{update}"
    store.update(
        "quick", None, lambda now: msgspec.structs.replace(now, cases={**now.cases, case_id: known})
    )
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from ddp_perf.baselines.store import BaselineStore
from tests.builders import make_baseline

Path.replace = lambda self, target: os.kill(os.getpid(), signal.SIGKILL)
BaselineStore(Path(sys.argv[1])).update(sys.argv[2], lambda now: make_baseline(units={}))
"""


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def write_twice(script, directory):
    """Run the script in two processes that write at the same time."""
    writers = [start(script, directory, name, UPDATES, KEY) for name in (1, 2)]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0


def test_two_processes_that_write_at_the_same_time_lose_no_structure(tmp_path):
    write_twice(OF_STRUCTURES, tmp_path)

    assert len(BaselineStore(tmp_path).work.structures("quick")) == 2 * UPDATES


def test_two_processes_that_write_at_the_same_time_lose_no_session(tmp_path):
    write_twice(WRITER, tmp_path)

    (case,) = BaselineStore(tmp_path).load(KEY).cases.values()
    written = [(session.launches[0]["tail"], session.date) for session in case.sessions]
    assert len(written) == len(set(written)) == 2 * UPDATES
    for name in (1.0, 2.0):  # each in its own order
        assert [date for tail, date in written if tail == name] == sorted(
            date for tail, date in written if tail == name
        )


def test_a_writer_killed_before_the_rename_leaves_the_old_file(tmp_path):
    store = BaselineStore(tmp_path)
    path = store.update(KEY, lambda now: make_baseline())
    before = path.read_bytes()

    killed = start(KILLED, tmp_path, KEY)
    killed.communicate(timeout=60)

    assert killed.returncode == -9
    assert path.read_bytes() == before
    store.update(KEY, lambda now: make_baseline(units={"step_time": "s"}))  # nor is it locked
    assert store.load(KEY).units == {"step_time": "s"}
