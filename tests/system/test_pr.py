"""``ddp-perf pr``: the two sessions that it starts, its comment, and its exit code.

A module stands in for pytest: it notes its arguments, and writes what a session leaves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ddp_perf.duel.values import write_duel
from ddp_perf.render.units import to_json
from ddp_perf.report.pull_request import MARKER
from tests import canonical
from tests.projects import REPOSITORY

PYTEST = """\
import os, pathlib, shutil, signal, subprocess, sys, time
counts = sys.argv[2] == "work"
name = "counts" if counts else "duel"
pathlib.Path(f"arguments-{name}").write_text("\\n".join(sys.argv[1:]))
pathlib.Path(f"advised-{name}").write_text(os.environ["DDP_PERF_COMMAND"])
assert "GITHUB_STEP_SUMMARY" not in os.environ
if "WAIT" in os.environ:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pathlib.Path("waiting").touch()
    time.sleep(60)
left = "work.json" if counts else "duel-results.json"
if pathlib.Path(left).exists():
    shutil.copy(left, f"artifacts/pr/{left}")
sys.exit(int(os.environ.get(name.upper(), 0)))
"""
BROKEN = """\
import pynvml
from ddp_perf.system.gpu import nvml
def refuse():
    raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
pynvml.nvmlInit, nvml.nvidia_device = refuse, lambda: "there is /dev/nvidia0"
"""


class PullRequest:
    """A branch with a commit of its own; ``main`` has gone on."""

    def __init__(self, root):
        self.root = root
        (root / "stand_in").mkdir()
        (root / "stand_in" / "pytest.py").write_text(PYTEST)
        self.git("init", "--quiet", "--initial-branch=main")
        for message in ("one", "two"):
            self.git("commit", "--quiet", "--allow-empty", "--message", message)
        self.git("checkout", "--quiet", "-b", "change", "HEAD~1")
        self.git("commit", "--quiet", "--allow-empty", "--message", "three")

    def start(self, *arguments, **variables):
        own = {"PYTHONPATH": f"{self.root}/stand_in:{REPOSITORY}", "PYTHONUTF8": "1"}
        kept = {"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1"}
        main = "from ddp_perf.cli.app import app; app()"
        return subprocess.Popen(
            [sys.executable, "-c", main, "pr", *arguments],
            cwd=self.root,
            env={**kept, **own, **{name: str(value) for name, value in variables.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )

    def __call__(self, *arguments, **variables):
        process = self.start(*arguments, **variables)
        shown, _ = process.communicate(timeout=300)
        return subprocess.CompletedProcess(arguments, process.returncode, shown)

    def git(self, *words):
        who = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        kept = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            ["git", *who, *words], cwd=self.root, env=kept, check=True, stdout=subprocess.PIPE
        )
        return done.stdout.decode().strip()

    def given(self, step):
        path = self.root / f"arguments-{step}"
        return path.read_text().splitlines() if path.exists() else None

    def advised(self, step):
        return (self.root / f"advised-{step}").read_text()

    @property
    def comment(self):
        return (self.root / "artifacts" / "pr" / "comment.md").read_text("utf-8")


@pytest.fixture
def pr(tmp_path):
    return PullRequest(tmp_path)


def test_without_a_base_it_counts_alone(pr):
    assert pr("-k", "a b", "tests").returncode == 0

    given = pr.given("counts")
    assert given[:2] == ["-m", "work"]
    assert given[given.index("-k") + 1] == "a b"
    assert {"tests", "--ddp-strict"} <= {*given}
    assert pr.given("duel") is None


@pytest.mark.parametrize("reason", [("--ddp-reason", "a text"), ("--ddp-reason=a text",)])
def test_a_reason_is_of_the_counts_alone(pr, reason):
    assert pr("--base", "main", *reason, "tests").returncode == 0

    assert {*reason} <= {*pr.given("counts")}
    duel = pr.given("duel")
    assert not {"a text", *reason} & {*duel}
    assert "tests" in duel


def test_a_duel_against_the_commit_of_departure_follows(pr):
    stored = ("--save-baseline=accept", "--ddp-reason=r")
    done = pr("--base", "main", "-k", "a b", *stored)

    assert done.returncode == 0, done.stdout
    assert {*stored} <= {*pr.given("counts")}
    duel = pr.given("duel")
    assert duel[:2] == ["-m", "perf and cpu"]
    assert f"--ddp-against={pr.git('rev-parse', 'HEAD~1')}" in duel
    assert {"--ddp-touched", "--ddp-budget=300s", "--ddp-strict"} <= {*duel}
    assert not {*stored} & {*duel}
    assert duel[duel.index("-k") + 1] == "a b"
    assert pr.advised("counts").endswith("pytest -m work -n auto -k 'a b' " + " ".join(stored))
    assert "--ddp-report" not in pr.advised("duel")


def test_a_broken_driver_runs_nothing_unless_the_tier_is_stated(pr):
    (pr.root / "stand_in" / "sitecustomize.py").write_text(BROKEN)

    done = pr("--base", "main")
    assert done.returncode == 4
    assert "the GPUs cannot be read (NVML: Driver Not Loaded" in done.stdout
    assert pr.given("counts") is None
    assert pr("--base", "main", "--tier", "cpu").returncode == 0


def test_the_comment_is_that_of_both_and_the_summary_of_the_job(pr):
    (pr.root / "work.json").write_text(to_json(canonical.work()))
    write_duel(pr.root / "duel-results.json", canonical.duel())

    done = pr("--base=main", COUNTS=1, DUEL=1, GITHUB_STEP_SUMMARY=pr.root / "summary")

    assert done.returncode == 1, done.stdout
    assert pr.comment.startswith(f"{MARKER}\n## ❌ BROKEN: ")
    assert "counts: red (2 cases: 1 REGRESSION, 1 PASS); duel: red (4 cases: " in pr.comment
    assert (pr.root / "summary").read_text("utf-8") == pr.comment
    for name in ("work.json", "duel-results.json"):
        (pr.root / name).unlink()
    pr("--base=main")
    assert pr.comment == f"{MARKER}\n## ✅ GREEN: pull request\n\ncounts: green; duel: green\n"


@pytest.mark.parametrize(
    ("counts", "duel", "code"),
    [(0, 1, 1), (1, 75, 1), (75, 0, 75), (75, 3, 3), (5, 0, 0), (0, 130, 130)],
)
def test_the_exit_code_is_the_worst_of_both(pr, counts, duel, code):
    assert pr("--base", "main", COUNTS=counts, DUEL=duel).returncode == code


@pytest.mark.parametrize("code", [4, 130])
def test_no_duel_follows_counts_that_did_not_end(pr, code):
    assert pr("--base", "main", COUNTS=code).returncode == code

    assert pr.given("duel") is None
    assert f"counts: exit code {code}" in pr.comment


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--base", "no-such"], "no-such and HEAD have no common commit here; check the name"),
        (["--base"], "requires an argument"),
        (["--base=main", "--budget=soon"], "'soon' is not"),
        (["--base=main", "--budget=60"], "'60' is not"),
        (["-m", "perf"], "-m: each step selects its tests by a marker of its own"),
        (["-mperf"], "-m: each step selects its tests by a marker of its own"),
    ],
)
def test_what_pytest_would_refuse_later_is_4_and_runs_nothing(pr, arguments, said):
    done = pr(*arguments)

    assert done.returncode == 4
    assert said in done.stdout
    assert pr.given("counts") is None


def test_sigterm_ends_the_session_that_runs_and_no_other_follows(pr):
    process = pr.start("--base", "main", WAIT="1")
    while not (pr.root / "waiting").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    shown, _ = process.communicate(timeout=60)

    assert process.returncode == 143, shown
    assert pr.given("duel") is None


def test_the_script_of_this_repository_runs_the_command_of_its_environment():
    script = (REPOSITORY / "ci" / "pr").read_text("utf-8")

    assert script.splitlines()[-1] == 'exec ddp-perf pr "$@" tests/work tests/perf'
    for path in ("tests/work", "tests/perf"):
        assert (REPOSITORY / path).is_dir()
