"""``ci/pr`` in an empty environment: what it runs, and its exit code.

The real script runs with a set-up that only puts a pytest on the path.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ddp_perf.report.directory import DUEL_MARKER
from tests.projects import REPOSITORY, TINY

SETUP = """\
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export PATH="$root/bin:$PATH"
"""
NOTING = """\
#!/usr/bin/env bash
printf '%s\\n' "$@" >arguments
printf '%s\\n' "$DDP_PERF_COMMAND" >advised
exit "${CODE-0}"
"""
# Stands in for both sessions: each notes its arguments, and writes its Markdown.
BOTH = """\
#!/usr/bin/env bash
case "$1" in
    tests/work) name=work code=${COUNTS-0} ;;
    *) name=duel code=${DUEL-0} ;;
esac
printf '%s\\n' "$@" >arguments-$name
printf '%s\\n' "$DDP_PERF_COMMAND" >advised-$name
[ -z "${WAIT-}" ] || { trap 'kill $!; exit 143' TERM; sleep 60 & touch waiting; wait; }
printf '%s\\n' "## of $name" "some text" >artifacts/pr/$name.md
exit "$code"
"""
REAL = """\
#!/usr/bin/env bash
exec {python} -m pytest -p ddp_perf.plugin "$@"
"""
INI = '[pytest]\naddopts = -m "not perf and not work" --import-mode=importlib\n'


class PullRequest:
    def __init__(self, root):
        self.root = root
        for name in ("ci", "bin"):
            (root / name).mkdir()
        for name in ("pr", "pull_request.py"):
            shutil.copy(REPOSITORY / "ci" / name, root / "ci" / name)
        (root / "ci" / "setup.sh").write_text(SETUP)
        self.pytest(NOTING)

        self.program("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')

    def pytest(self, script):
        self.program("pytest", script)

    def program(self, name, script):
        path = self.root / "bin" / name
        path.write_text(script)
        path.chmod(0o755)

    def start(self, *arguments, **variables):
        return subprocess.Popen(
            [
                *("env", "-i", "PATH=/usr/bin:/bin", f"PYTHONPATH={REPOSITORY}", "PYTHONUTF8=1"),
                *(f"{name}={value}" for name, value in variables.items()),
                *(str(self.root / "ci" / "pr"), *arguments),
            ],
            cwd=self.root.parent,
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
        return (self.root / f"arguments-{step}").read_text().splitlines()

    @property
    def comment(self):
        return (self.root / "artifacts" / "pr" / "comment.md").read_text("utf-8")


@pytest.fixture
def pr(tmp_path):
    return PullRequest(tmp_path)


def test_the_work_and_the_correctness_are_one_strict_session(pr):
    assert pr("-k", "a b").returncode == 0

    given = (pr.root / "arguments").read_text().splitlines()
    tests = [argument for argument in given if argument.startswith("tests/")]
    assert tests[0] == "tests/work"
    assert all((REPOSITORY / path).exists() for path in tests)
    assert given[given.index("-m") + 1] == "not perf"
    assert "--ddp-strict" in given
    assert given[-2:] == ["-k", "a b"]


@pytest.mark.parametrize("code", [0, 1, 4, 75])
def test_the_exit_code_is_that_of_pytest(pr, code):
    assert pr(CODE=code).returncode == code


def test_a_set_up_that_fails_is_3(pr):
    (pr.root / "ci" / "setup.sh").write_text("false\n")

    assert pr().returncode == 3


@pytest.mark.slow
def test_a_case_without_counts_is_undecided_until_they_are_stored(pr):
    pr.pytest(REAL.format(python=sys.executable))
    (pr.root / "pytest.ini").write_text(INI)
    (pr.root / "bench_configs").mkdir()
    (pr.root / "bench_configs" / "tiny.yaml").write_text(TINY)
    shutil.copytree(REPOSITORY / "tests" / "work", pr.root / "tests" / "work")
    for name in ("ddp", "fsdp"):
        path = pr.root / "tests" / "correctness" / f"test_{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("def test_one(): pass\n")

    first = pr()
    assert first.returncode == 75, first.stdout
    assert first.stdout.splitlines()[-1] == "next: .venv/bin/pytest -m work -n auto --save-baseline"
    stored = pr("--save-baseline")
    assert stored.returncode == 0, stored.stdout
    assert " 2 passed, 2 skipped" in stored.stdout
    for name in ("work.html", "junit.xml"):
        assert (pr.root / "artifacts" / "pr" / name).exists()


# ---- with a base ----


@pytest.fixture
def based(pr):
    """A branch with a commit of its own; ``main`` has gone on."""
    pr.pytest(BOTH)
    pr.git("init", "--quiet", "--initial-branch=main")
    for message in ("one", "two"):
        pr.git("commit", "--quiet", "--allow-empty", "--message", message)
    pr.git("checkout", "--quiet", "-b", "change", "HEAD~1")
    pr.git("commit", "--quiet", "--allow-empty", "--message", "three")
    return pr


def test_with_a_base_a_duel_against_the_commit_of_departure_follows(based):
    done = based("--base", "main", "-k", "a b", "--save-baseline=accept", "--ddp-reason=r")

    assert done.returncode == 0, done.stdout
    counting, duel = based.given("work"), based.given("duel")
    assert counting[0] == "tests/work"
    assert all((REPOSITORY / path).exists() for path in counting if path.startswith("tests/"))
    assert "--save-baseline=accept" in counting
    assert duel[:3] == ["tests/perf", "-m", "perf and cpu"]
    assert f"--ddp-against={based.git('rev-parse', 'HEAD~1')}" in duel
    assert "--ddp-touched" in duel
    assert "--ddp-budget=300s" in duel
    assert not [word for word in duel if word.startswith(("--save", "--ddp-reason"))]
    for given in (counting, duel):
        assert "--ddp-strict" in given
        assert given[given.index("-k") + 1] == "a b"


BROKEN = """\
import pynvml
from ddp_perf.system.gpu import nvml
def refuse():
    raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
pynvml.nvmlInit, nvml.nvidia_device = refuse, lambda: "there is /dev/nvidia0"
"""


def test_a_broken_driver_runs_nothing_unless_the_tier_is_stated(based):
    (based.root / "sitecustomize.py").write_text(BROKEN)
    python = {"PYTHONPATH": f"{based.root}:{REPOSITORY}"}

    done = based("--base", "main", **python)
    assert done.returncode == 3
    assert "the GPUs cannot be read (NVML: Driver Not Loaded" in done.stdout
    assert not (based.root / "arguments-work").exists()
    assert based("--base", "main", "--tier", "cpu", **python).returncode == 0
    assert based.given("duel")[:3] == ["tests/perf", "-m", "perf and cpu"]


def test_the_comment_has_the_marker_the_duel_and_the_folded_counts(based):
    assert based("--base=main", "--budget=60s", COUNTS="1").returncode == 1

    assert "--ddp-budget=60s" in based.given("duel")
    lines = based.comment.splitlines()
    assert lines[:2] == [DUEL_MARKER, "counts and correctness: red; duel: green"]
    assert "## of duel" in lines
    assert "<details><summary>of work</summary>" in lines


@pytest.mark.parametrize("budget", ["0", "nan", "60"])
def test_a_budget_that_pytest_would_refuse_is_refused_before_the_counts(based, budget):
    done = based("--base=main", f"--budget={budget}")

    assert done.returncode == 4
    assert not (based.root / "advised-work").exists()


def test_the_next_commands_are_of_the_session_that_advises_them(based):
    based("--base", "main", "-k", "mlp")

    advised = (based.root / "advised-work").read_text()
    assert advised == ".venv/bin/pytest -m work -n auto -k mlp\n"
    assert "--ddp-against=" in (based.root / "advised-duel").read_text()


@pytest.mark.parametrize(
    ("counts", "duel", "code"),
    [
        (0, 1, 1),
        (1, 75, 1),
        (75, 0, 75),
        (75, 3, 3),
        (5, 0, 0),
        (0, 130, 130),
    ],
)
def test_the_exit_code_is_the_worst_of_both(based, counts, duel, code):
    assert based("--base", "main", COUNTS=counts, DUEL=duel).returncode == code


@pytest.mark.parametrize("code", [4, 130])
def test_no_duel_follows_counts_that_did_not_end(based, code):
    assert based("--base", "main", COUNTS=code).returncode == code

    assert not (based.root / "arguments-duel").exists()
    assert "There is no duel" in based.comment


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--base", "no-such"], "no-such and HEAD have no common commit here; check the name"),
        (["--base"], "expected one argument"),
        (["--base=main", "--budget=soon"], "'soon' is not"),
    ],
)
def test_a_base_that_is_not_there_is_4_and_runs_nothing(based, arguments, said):
    done = based(*arguments)

    assert done.returncode == 4
    assert said in done.stdout
    assert not (based.root / "arguments-work").exists()


def test_sigterm_ends_the_session_that_runs_and_no_other_follows(based):
    process = based.start("--base", "main", WAIT="1")
    while not (based.root / "waiting").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    shown, _ = process.communicate(timeout=60)

    assert process.returncode == 143, shown
    assert not (based.root / "arguments-duel").exists()
