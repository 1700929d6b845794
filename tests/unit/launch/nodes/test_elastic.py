"""torchrun and its ranks as the node process sees them: what they do not do ends no launch late."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest

from ddp_perf.launch.launcher import contents
from ddp_perf.launch.nodes.node import MeetingPlace, Torchrun
from ddp_perf.worker.report import NodeFiles


@pytest.fixture
def files(tmp_path):
    return NodeFiles(directory=tmp_path)


@pytest.fixture
def sleeping(files, tmp_path, monkeypatch):
    """A torchrun that does not end."""
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\nexec sleep 600\n")
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    torchrun = Torchrun([], os.environ, files)
    yield torchrun
    torchrun.end(in_peace=False)


def test_a_torchrun_that_does_not_end_is_waited_for_once_for_all_ranks(sleeping, monkeypatch):
    patience = []
    with monkeypatch.context() as patched:
        patched.setattr(sleeping, "wait", patience.append)

        assert [sleeping.exit_code_of(pid) for pid in (11, 12, 13)] == [None, None, None]

    assert sum(seconds > 1 for seconds in patience) == 1


def test_ranks_can_read_which_process_is_torchrun(sleeping, files):
    pid = int(files.torchrun.read_text())

    assert Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[3] == str(os.getpid())


def test_a_rank_whose_torchrun_ended_before_it_started_does_not_outlive_it(files):
    """Its parent is then another process, which may live for ever."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    files.torchrun.write_text(str(gone.pid))

    rank = subprocess.run(
        [sys.executable, "-m", "ddp_perf.worker.elastic_rank", str(files.directory)],
        env={**os.environ, "RANK": "0", "LOCAL_RANK": "0"},
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
    )

    assert rank.returncode == -9, rank.stderr


@pytest.fixture
def silent_rank(files):
    """A place to meet, to which a rank has connected that says nothing."""
    meeting = MeetingPlace(files, 1)
    with meeting.socket, socket.socket(socket.AF_UNIX) as rank:
        with files.socket_address() as address:
            rank.connect(address)
        yield meeting


def test_a_rank_that_does_not_greet_is_not_waited_for(silent_rank):
    driver, _theirs = Pipe(duplex=False)

    assert silent_rank.accept(driver, 0.05) is None


def test_a_driver_that_leaves_is_noticed_before_a_rank_greets(silent_rank):
    driver, theirs = Pipe(duplex=False)
    theirs.close()

    with contextlib.closing(driver), pytest.raises(EOFError):
        silent_rank.accept(driver, 60.0)


def test_a_directory_among_the_files_of_a_launch_stays_there(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "rank0.json").write_bytes(b"{}")

    assert contents(tmp_path) == {"rank0.json": b"{}"}
