"""One measurement at a time on a machine, held by a process and freed with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddp_perf.errors import LeaseError
from ddp_perf.system.lease import machine_lease

ROOT = Path(__file__).parents[3]

HOLDER = """
import sys
from pathlib import Path
from ddp_perf.system.lease import machine_lease

with machine_lease(patience_s=0, on_wait=print, directory=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lease of ``tmp_path`` until its stdin is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_free_machine_is_leased_at_once(tmp_path):
    told = []

    with machine_lease(patience_s=0, on_wait=told.append, directory=tmp_path):
        pass
    with machine_lease(patience_s=0, on_wait=told.append, directory=tmp_path):
        pass

    assert told == []


def test_a_second_holder_is_told_who_measures_and_gives_up_after_its_patience(tmp_path, holder):
    told = []

    with (
        pytest.raises(LeaseError, match=f"still being measured by .*pid {holder.pid}") as caught,
        machine_lease(patience_s=0.05, on_wait=told.append, directory=tmp_path),
    ):
        pytest.fail("two sessions measure at once")

    assert "run again when it is done" in str(caught.value)
    assert len(told) == 1
    assert f"(pid {holder.pid}, since " in told[0]


def test_a_waiting_session_goes_on_as_soon_as_the_holder_is_done(tmp_path, holder):
    with machine_lease(
        patience_s=30, on_wait=lambda text: holder.stdin.close(), directory=tmp_path
    ):
        assert holder.wait(timeout=30) == 0


def test_the_lease_of_a_killed_holder_is_free(tmp_path, holder):
    holder.kill()
    holder.wait(timeout=30)
    told = []

    with machine_lease(patience_s=0, on_wait=told.append, directory=tmp_path):
        pass

    assert told == []


def test_an_error_while_measuring_frees_the_machine(tmp_path):
    with (
        pytest.raises(KeyboardInterrupt),
        machine_lease(patience_s=0, on_wait=pytest.fail, directory=tmp_path),
    ):
        raise KeyboardInterrupt

    with machine_lease(patience_s=0, on_wait=pytest.fail, directory=tmp_path):
        pass
