"""A git project with the training, its gate and its stored sessions, and copies of it to edit.

Its history goes on while sessions are stored: each has a commit of its own. Files that no step
needs change between them, and after the last one, as they do in a real repository.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.settle_edits import BUILD, SOURCES, SlowEdit
from ddp_perf.core.metric import STEP_TIME

ROOT = Path(__file__).parents[1]
SUITE = """\
suite: training
tier: cpu
workload: training.build:build
world_sizes: [1, 2]
batch_sizes: [128]
launches: 5
tolerances: {step_time: 0.10, tail: 0.10, efficiency: 0.10, cpu_time: 0.10, peak_memory: 0.10}
"""
_IGNORED = "__pycache__/\nartifacts/\n"
_COMMAND = "from ddp_perf.cli.app import app; app()"
_EXAMPLES = ("bench_configs/example.yaml", "perf_workload.py")
_TRIES = 3  # to store a session: a busy machine may refuse one
_UNRELATED = "training/names.py"  # no workload imports it


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A pytest session: how it ended, its results file if it wrote one, and what it printed."""

    exit_code: int
    results: bytes | None
    output: str


class SettleProject:
    """A project in a directory. Its results and the cache of checkouts lie beside it."""

    def __init__(self, directory: Path, options: Sequence[str] = ()) -> None:
        """``options`` are those of each pytest session."""
        self.path = directory / "project"
        self._options = options
        self._directory = directory

    def prepared(self, sessions: int) -> SettleProject:
        """Make the project with so many stored sessions, a day apart, unless it is there."""
        done = self._directory / f"stored-{sessions}"
        if not done.exists():
            shutil.rmtree(self._directory, ignore_errors=True)
            self._begin()
            for number in range(1, sessions + 1):
                self.store(number)
            done.touch()
        return self

    def copied(self, directory: Path) -> SettleProject:
        """Return a copy of the project, with its history, in a directory of its own."""
        shutil.copytree(self.path, directory / "project", symlinks=True)
        return SettleProject(directory, self._options)

    def go_on(self) -> None:
        """Commit what no step needs, as it happens between two sessions."""
        self._document("How to read the log.")
        self._append(_UNRELATED, "\n\nLONGEST = 32  # of a name\n")
        self._commit("The longest name of a run")

    def touch(self) -> None:
        """Commit another docstring in a file that each rank imports: it changes no step."""
        path = self.path / BUILD
        text = path.read_text(encoding="utf-8").replace("each rank trains.", "every rank trains.")
        path.write_text(text, encoding="utf-8")
        self._commit("The docstring of the builder")

    def make(self, edit: SlowEdit) -> str | None:
        """Make the edit among other commits, and return its commit; None: the tree has it."""
        self.go_on()
        self.touch()
        edit.make(self.path)
        if not edit.committed:
            return None
        commit = self._commit(f"Change {edit.file}")
        self._document("Who to ask.")
        return commit

    def marked_lines(self, edit: SlowEdit) -> tuple[int, ...]:
        """Return the numbers of the marked lines in the edited file."""
        return edit.marked_lines((self.path / edit.file).read_text(encoding="utf-8"))

    def session(self, *options: str) -> Ended:
        """Run the performance tests once."""
        results = self._directory / "results.json"
        results.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"),
            *("tests/test_perf.py", "-m", "perf and cpu", f"--ddp-json={results}"),
            *options,
            *self._options,
        ]
        done = subprocess.run(
            command,
            cwd=self.path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "XDG_CACHE_HOME": str(self._directory / "cache"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return Ended(
            exit_code=done.returncode,
            results=results.read_bytes() if results.exists() else None,
            output=done.stdout + done.stderr,
        )

    def store(self, number: int) -> None:
        """Store one session more, let a day go by, and commit it."""
        self._document(f"Week {number}: what was tried.")
        mode = "append" if number > 1 else "missing"
        for _ in range(_TRIES):
            ended = self.session(f"--save-baseline={mode}")
            if all(sessions == number for sessions in self._stored()):
                break
            self._forget()
        else:
            raise SystemExit(f"session {number} was not stored\n{ended.output}")
        for path in self._baselines():
            baseline = json.loads(path.read_text(encoding="utf-8"))
            path.write_text(json.dumps(a_day_earlier(baseline)), encoding="utf-8")
        self._commit(f"The session of night {number}")

    def _begin(self) -> None:
        self.path.mkdir(parents=True)
        self._git("init", "-q", "-b", "main")
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", _COMMAND, "init", "."]
        subprocess.run(command, cwd=self.path, env=environ, check=True, capture_output=True)
        for example in _EXAMPLES:
            (self.path / example).unlink()
        shutil.copytree(
            SOURCES / "training",
            self.path / "training",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        self._write("bench_configs/training.yaml", SUITE)
        self._write(".gitignore", _IGNORED)
        self._write("README.md", "# A training\n")
        self._commit("A training, and its performance tests")
        self._document("How to start it.")
        self._append(_UNRELATED, "\n\nSHORTEST = 4  # of a name\n")
        self._commit("The shortest name of a run")

    def _stored(self) -> list[int]:
        """Return how many sessions of each case are stored with their step time."""
        found = [
            sum(STEP_TIME.name in session["launches"] for session in case["sessions"])
            for path in self._baselines()
            for case in json.loads(path.read_text(encoding="utf-8"))["cases"].values()
        ]
        return found or [0]

    def _forget(self) -> None:
        """Take the baselines back to those of the last commit."""
        self._git("clean", "-q", "-f", "-d", "baselines")
        if self._git("ls-files", "baselines"):
            self._git("checkout", "-q", "--", "baselines")

    def _baselines(self) -> Iterator[Path]:
        return (self.path / "baselines").glob("*.json")

    def _document(self, line: str) -> None:
        self._append("README.md", f"\n{line}\n")
        self._commit(f"README: {line}")

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8")

    def _append(self, name: str, text: str) -> None:
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def _commit(self, message: str) -> str:
        self._git("add", "-A")
        self._git("commit", "-q", "-m", message)
        return self._git("rev-parse", "HEAD")

    def _git(self, *arguments: str) -> str:
        """Run git without the settings of the user, and return what it writes."""
        who = ["-c", "user.name=Ada Lovelace", "-c", "user.email=ada@example.org"]
        command = ["git", *who, "-C", str(self.path), *arguments]
        environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
        return done.stdout.strip()


def a_day_earlier(baseline: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a baseline file whose sessions are a day older."""
    cases = {
        name: {
            **case,
            "sessions": [{**one, "date": _day_before(one["date"])} for one in case["sessions"]],
            "log": [{**one, "date": _day_before(one["date"])} for one in case.get("log", ())],
        }
        for name, case in baseline["cases"].items()
    }
    return {**baseline, "cases": cases}


def _day_before(date: str) -> str:
    earlier = datetime.datetime.fromisoformat(date) - datetime.timedelta(days=1)
    return earlier.isoformat(timespec="seconds")
