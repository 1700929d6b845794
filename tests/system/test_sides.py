"""Sides for real: an environment whose ranks run, and a repository that stays as it was."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ddp_perf.core.launch import LaunchResult
from ddp_perf.duel.open_sides import side_launcher
from ddp_perf.duel.sides.preparing import parse_side, prepare
from ddp_perf.errors import SideError
from tests.repositories import Repository, every_byte
from tests.wheels import write_wheel


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ddp-perf"


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Packages that pip finds without a network, and one of the user that needs another version."""
    wheels, own = tmp_path / "wheels", tmp_path / "own"
    for version in ("1.0", "2.0"):
        write_wheel(wheels, "toy", version)
    write_wheel(wheels, "needs_toy", "1.0", requires="toy==1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    shutil.unpack_archive(wheels / "needs_toy-1.0-py3-none-any.whl", own, "zip")
    monkeypatch.setenv("PYTHONPATH", str(own), prepend=os.pathsep)
    return wheels


@pytest.mark.slow
def test_ranks_run_in_an_environment_that_is_made_once(
    tmp_path, cache, toys, request_of, monkeypatch
):
    side = parse_side("toy==2.0", "A", tmp_path)
    lines = []
    with prepare(side, tmp_path, on_progress=lines.append) as prepared:
        code = "import toy, torch, msgspec; print(toy.VERSION, toy.__file__)"
        shown = subprocess.check_output([prepared.interpreter, "-c", code], text=True).split()
        assert shown[0] == "2.0"
        assert shown[1].startswith(str(cache))
        with contextlib.closing(side_launcher(prepared)) as launcher:
            outcome = launcher.launch(request_of("faulty:build", {"fault": "nothing"}))
    assert isinstance(outcome, LaunchResult)
    assert lines[0].startswith("making a virtual environment with toy==2.0")
    assert any(line.startswith("Installing") for line in lines)
    assert "needs-toy 1.0 needs toy==1.0; name its version in the side" in lines[-1]

    again = []
    with prepare(side, tmp_path, on_progress=again.append):
        assert again == lines[-1:]

    hides = tmp_path / "hides"
    shutil.unpack_archive(toys / "toy-1.0-py3-none-any.whl", hides, "zip")
    monkeypatch.setenv("PYTHONPATH", str(hides), prepend=os.pathsep)
    with pytest.raises(SideError, match=r"toy==2\.0: ranks would import 1\.0 in its place"):
        prepare(side, tmp_path, on_progress=print).__enter__()


@pytest.mark.slow
def test_a_version_that_does_not_exist_is_refused_with_what_lists_those_that_do(tmp_path, toys):
    side = parse_side("toy==9.0", "A", tmp_path)

    with pytest.raises(SideError) as refused:
        prepare(side, tmp_path, on_progress=print).__enter__()

    reason, remedy = str(refused.value).splitlines()
    assert reason.startswith("toy==9.0: pip cannot install it: ")
    assert reason.endswith(" / ERROR: No matching distribution found for toy==9.0")
    assert remedy == "`pip index versions toy` lists what there is"


@pytest.fixture
def project(tmp_path):
    """A repository as a user leaves one: staged, unstaged, untracked, ignored and stashed files."""
    project = Repository(tmp_path / "project")
    project.commit({".gitignore": "*.log\n", "a.py": "a", "b.py": "b"}, "second")
    project.git("branch", "topic")
    project.git("tag", "v1")
    project.write({"a.py": "stashed"})
    project.git("stash")
    project.write({"a.py": "staged", "c.py": "staged"})
    project.git("add", "a.py", "c.py")
    project.write({"a.py": "unstaged", "d.py": "untracked", "run.log": "ignored"})
    os.utime(project.path / "b.py", (1e9, 1e9))  # git would write the index after a look at it
    return project


PREPARE = """
import pathlib, sys, time
from ddp_perf.duel.sides.preparing import parse_side
from ddp_perf.duel.sides.preparing import prepare

root, ending = pathlib.Path(sys.argv[1]), sys.argv[2]
parse_side(".", "B", root)
with prepare(parse_side("main~1", "A", root), root, on_progress=print) as prepared:
    print("ready", flush=True)
    if ending == "error":
        raise ValueError
    if ending != "success":
        time.sleep(60)
"""
SLOW_GIT = """#!/bin/sh
case "$*" in
*" checkout "*) {git} "$@"; echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 60 ;;
esac
exec {git} "$@"
"""


@pytest.mark.parametrize("ending", ["success", "error", "SIGINT", "SIGKILL"])
def test_the_users_repository_stays_byte_for_byte(project, ending):
    before = every_byte(project.path)
    command = [sys.executable, "-c", PREPARE, str(project.path), ending]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as user:
        assert b"checking out" in user.stdout.readline()
        assert user.stdout.readline() == b"ready\n"
        if ending.startswith("SIG"):
            user.send_signal(signal.Signals[ending])
    assert (user.returncode == 0) == (ending == "success")
    assert every_byte(project.path) == before


@pytest.mark.parametrize("ending", ["SIGINT", "SIGKILL"])
def test_an_interrupted_checkout_leaves_the_repository_and_is_made_again(
    project, ending, tmp_path, cache, monkeypatch
):
    """The process ends while git is at work."""
    before = every_byte(project.path)
    slow, pid = tmp_path / "bin" / "git", tmp_path / "pid"
    slow.parent.mkdir()
    slow.write_text(SLOW_GIT.format(git=shutil.which("git"), pid=pid))
    slow.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(slow.parent), prepend=os.pathsep)
        command = [sys.executable, "-c", PREPARE, str(project.path), ending]
        user = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not pid.exists():
        assert user.poll() is None
        time.sleep(0.01)
    user.send_signal(signal.Signals[ending])
    assert user.wait() != 0

    checkouts = cache / "checkouts"
    side = parse_side("main~1", "A", project.path)
    assert (checkouts / side.commit).exists() == (ending == "SIGKILL")
    with prepare(side, project.path, on_progress=print) as prepared:
        assert (prepared.root / "model.py").is_file()
    assert every_byte(project.path) == before
    with contextlib.suppress(ProcessLookupError):  # Popen kills its child after Ctrl-C
        os.kill(int(pid.read_text()), signal.SIGKILL)
