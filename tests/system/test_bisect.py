"""The search for a commit on real ranks, in a real repository."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bisect_repository import CASE, TWO_RANKS, RowsRepository

REPOSITORY = RowsRepository(commits=8, slow=6, more=12, broken=frozenset({5}))  # about 3 × slower
# A shell that runs the tests in the background has them ignore SIGINT, and so their children.
HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
COMMAND = [sys.executable, "-c", f"{HEED}from ddp_perf.cli.app import app; app()", "bisect"]


def written(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory = tmp_path / "project"
    directory.mkdir()
    repository.write(directory)
    return directory


@pytest.fixture
def project(tmp_path, monkeypatch):
    directory = written(REPOSITORY, tmp_path, monkeypatch)
    # It is in the user's tree, and in no commit.
    (directory / "a_module_that_is_missing.py").write_text("")
    return directory


def start(project, *arguments, case=CASE):
    given = ["--good", "good", "--bad", "main", "--case", case, *arguments]
    return subprocess.Popen(
        [*COMMAND, *given],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def files_of(project):
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in project.rglob("*")
    }


def launches_of(log_directory):
    """The launches on disk: the first line of a log is its header."""
    lines = [path.read_bytes().splitlines() for path in log_directory.glob("*.jsonl")]
    return lines[0][1:] if lines else []


def end_after(launches, number, project, logs):
    """Run the command, send it the signal after so many launches, and return how it ended."""
    running = start(project)
    while running.poll() is None and len(launches_of(logs)) < launches:
        time.sleep(0.02)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    return running.returncode, out, err


@pytest.mark.slow
def test_a_search_that_was_ended_twice_names_the_slower_commit_with_its_line(project, tmp_path):
    before = files_of(project)
    logs = tmp_path / "cache" / "ddp-perf" / "bisect"

    code, out, err = end_after(1, signal.SIGTERM, project, logs)
    assert (code, "Traceback" in err) == (143, False), err
    assert "Undecided" in out
    assert "run the same command again to go on" in err
    code, _, _ = end_after(5, signal.SIGKILL, project, logs)
    assert code == -signal.SIGKILL
    finished = launches_of(logs)
    going_on = start(project, "--json")
    out, err = going_on.communicate(timeout=300)

    assert going_on.returncode == 0, err
    assert f"goes on after {len(finished)} launches" in err
    assert launches_of(logs)[: len(finished)] == finished
    result = json.loads(out)
    (culprit,) = result["culprits"]
    subjects = [commit["subject"] for commit in culprit["commits"]]
    assert subjects == ["Edit 5 of the workload", "Edit 6 of the workload"]
    assert result["probability"] >= 0.95
    assert culprit["effect"]["ratio"] > 1.5
    assert any("perf_workload.py" in json.dumps(change) for change in culprit["work"])
    (failed,) = [each for each in result["asked"] if each["failure"]]
    assert failed["place"] == 5
    assert "No module named 'a_module_that_is_missing'" in failed["failure"]
    assert files_of(project) == before


@pytest.mark.slow
def test_the_only_commit_that_touches_the_case_is_named_without_a_launch(tmp_path, monkeypatch):
    repository = RowsRepository(commits=32, slow=21, more=12, touching=frozenset({21}), ranks=2)
    project = written(repository, tmp_path, monkeypatch)

    out, err = start(project, case=TWO_RANKS).communicate(timeout=300)

    text = " ".join(out.split())
    assert "32 commits after good" in text, err
    assert "1 of them can change what the case does" in text
    assert '"Edit 21 of the workload"' in text
    assert "is the only commit that can change what the case does" in text
    assert "0 launches" in text
    assert "FLOPs" in text  # what it does more
