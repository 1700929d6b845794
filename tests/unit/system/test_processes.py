"""What /proc says of a process, whatever its name."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading

import pytest

from ddp_perf.system.processes import describe_state, state_of, thread_count


@pytest.fixture
def child(tmp_path):
    """A sleeping process with a name that looks like the fields after it."""
    link = tmp_path / "odd) T (name"
    link.symlink_to(shutil.which("sleep"))
    with subprocess.Popen([str(link), "600"]) as process:
        yield process
        process.kill()


def test_a_stopped_process_is_known(child):
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)

    assert state_of(child.pid) == "T"


def test_a_name_that_looks_like_a_state_does_not_deceive(child):
    assert state_of(child.pid) in ("S", "R", "D")


def test_a_process_that_is_gone_has_no_state(child):
    child.kill()
    child.wait()

    assert state_of(child.pid) is None


@pytest.mark.parametrize(
    ("state", "words"),
    [("T", "stopped (T)"), ("S", "sleeping (S)"), ("?", "in an unknown state (?)"), (None, "gone")],
)
def test_states_are_put_in_words(state, words):
    assert describe_state(state) == words


def test_threads_are_counted():
    before, go = thread_count(), threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    try:
        assert thread_count() == before + 1
    finally:
        go.set()
        thread.join()
