"""The next driver removes the directory of a killed one, and no other."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ddp_perf.launch import launcher as scratch_module
from ddp_perf.launch.launcher import ScratchDirectory

_HOLDER = """
from ddp_perf.launch.launcher import ScratchDirectory
scratch = ScratchDirectory()
(scratch.path / "server.out").write_text("what a server said")
print(scratch.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder(temporary):
    """Another driver, and its directory."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_closing_removes_the_directory(temporary):
    scratch = ScratchDirectory()
    (scratch.path / "server.out").write_text("what a server said")
    assert list(temporary.iterdir()) == [scratch.path]

    scratch.close()
    scratch.close()

    assert list(temporary.iterdir()) == []


def test_the_next_driver_removes_the_directory_of_a_killed_one(holder):
    process, left = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert left.exists()

    scratch = ScratchDirectory()

    assert not left.exists()
    scratch.close()


def test_the_directory_of_a_running_driver_is_kept(holder):
    _, held = holder

    ScratchDirectory().close()

    assert (held / "server.out").exists()


def test_the_directory_of_another_user_is_kept(temporary, monkeypatch):
    others = temporary / f"{scratch_module._PREFIX}others"
    others.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: others.stat().st_uid + 1)

    ScratchDirectory().close()

    assert others.exists()


def test_the_directory_of_another_host_is_kept(temporary):
    """On some shared file systems the lock of another host's driver is not seen here."""
    others = temporary / "ddp-perf-launches-anotherhost-x"
    others.mkdir()

    ScratchDirectory().close()

    assert others.exists()
    assert socket.gethostname() in scratch_module._PREFIX


def test_files_and_links_with_the_prefix_are_kept(temporary):
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    names = [temporary / f"{scratch_module._PREFIX}{name}" for name in ("file", "link")]
    names[0].write_text("no directory")
    names[1].symlink_to(elsewhere)

    ScratchDirectory().close()

    assert elsewhere.exists()
    assert all(os.path.lexists(name) for name in names)


def test_a_directory_that_was_removed_before_it_was_locked_is_made_again(temporary, monkeypatch):
    make = tempfile.mkdtemp

    def made_and_removed(**arguments):
        monkeypatch.setattr(tempfile, "mkdtemp", make)
        path = make(**arguments)
        os.rmdir(path)
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", made_and_removed)

    scratch = ScratchDirectory()

    assert scratch.path.exists()
    scratch.close()


def test_without_file_locks_no_directory_is_removed(temporary, monkeypatch):
    import fcntl

    def none(descriptor, operation):
        raise OSError(9, "Bad file descriptor")  # of a directory on NFS

    monkeypatch.setattr(fcntl, "flock", none)
    left = temporary / f"{scratch_module._PREFIX}left"
    left.mkdir()

    scratch = ScratchDirectory()
    scratch.close()

    assert (left.exists(), scratch.path.exists()) == (True, False)
