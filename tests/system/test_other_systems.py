"""macOS and Windows, simulated: commands that read work, those that launch are refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_perf.session.result import write_results
from tests.builders import make_cases, make_measurement, make_result
from tests.projects import TINY, make_project

ROOT = Path(__file__).parents[2]
PRETENCE = Path(__file__).parent / "other_systems"
TRACE = ROOT / "tests" / "unit" / "traces" / "recorded" / "a100_ws2.json.gz"
SET_UP_READS = (
    *("ddp_perf/__init__.py", "ddp_perf/errors.py", "ddp_perf/system/__init__.py"),
    "ddp_perf/system/host/launch_platform.py",
)
NAMES = {"darwin": "macOS", "win32": "Windows"}

_COMMANDS = """
import json, sys, traceback
from typer.testing import CliRunner
from ddp_perf.cli.app import app

for arguments in json.load(sys.stdin):
    done = CliRunner().invoke(app, arguments)
    crashed = done.exception is not None and not isinstance(done.exception, SystemExit)
    trace = "".join(traceback.format_exception(*done.exc_info)) if crashed else ""
    print(json.dumps([done.exit_code, done.stdout, done.stderr + trace]))
"""


@pytest.fixture(params=["darwin", pytest.param("win32", marks=pytest.mark.slow)])
def system(request):
    return request.param


@pytest.fixture
def run(system, pytester, monkeypatch):
    """``run("-m", "pytest", …)`` runs Python as on that system, in a small project."""
    project = make_project(pytester, monkeypatch, tiny=TINY)
    path = os.pathsep.join([str(PRETENCE), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "PRETENDED_SYSTEM": system, "PYTHONUTF8": "1"}

    def start(*arguments, **options):
        command = [sys.executable, *arguments]
        options = {"capture_output": True, "text": True, "encoding": "utf-8", **options}
        return subprocess.run(command, cwd=project.path, env=env, **options)

    return start


@pytest.fixture
def commands(run):
    """``commands(["compare", …], …)``: exit code, stdout and stderr of each call of ddp-perf."""

    def call(*each):
        done = run("-c", _COMMANDS, input=json.dumps(each))
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return call


def test_every_command_that_only_reads_works_on_other_systems(commands, pytester):
    cases = make_cases(world_sizes=[1, 2, 4])
    measurements = [make_measurement(case, [0.010, 0.0101, 0.0102]) for case in cases]
    write_results(pytester.path / "results.json", [make_result(measurements)], complete=True)
    shutil.copy(ROOT / "baselines" / "t4.json", pytester.path / "baselines")
    history = "sqlite:///history.sqlite"
    each = [
        ["compare", "results.json", "results.json"],
        ["report", "results.json"],
        ["explain", "results.json"],
        ["predict", "results.json"],
        ["trace", str(TRACE)],
        ["audit"],
        ["baseline", "list"],
        ["history", "import", "results.json", "--history", history],
        ["history", "--history", history],
    ]

    for arguments, (code, stdout, stderr) in zip(each, commands(*each), strict=True):
        assert code in (0, 1, 75), (arguments, stderr)  # 4: usage
        assert (stderr, bool(stdout)) == ("", True), arguments


def test_commands_that_launch_are_refused_in_one_line_on_other_systems(commands, system):
    (code, stdout, stderr), (fit, shown, _) = commands(["selftest", "--budget", "1s"], ["doctor"])

    refusal = f"ranks can be launched only on Linux, and this is {NAMES[system]}"
    assert (code, stdout) == (4, "")
    assert stderr.startswith(f"ddp-perf: {refusal}; launch on Linux, in WSL2 or in a Linux")
    assert stderr.count("\n") == 1
    assert fit == 1
    assert f"\n  {refusal}\n    → launch on Linux, in WSL2 or in a Linux" in shown
    assert "cpu: nothing: no rank can be started" in shown
    assert "what works here" in shown


def test_set_up_is_refused_in_one_line_before_it_installs_anything(run, system, tmp_path):
    for path in ("ci/setup.sh", *SET_UP_READS):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)

    script = "import os, sys; os.execvp('bash', ['bash', '-c', sys.argv[1]])"
    sourced = f"set -e; export PYTHON='{sys.executable}'; source '{tmp_path}/ci/setup.sh'"
    done = run("-c", script, sourced)

    assert done.returncode == 1
    assert (
        f"setup: ranks can be launched only on Linux, and this is {NAMES[system]}; " in done.stderr
    )
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / ".venv").exists()


def test_cases_are_collected(run):
    done = run("-m", "pytest", "--collect-only", "-q", "-m", "perf and cpu")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_step_time[mlp-ddp-fp32-ws2-b16]" in done.stdout


def test_timed_cases_are_a_usage_error_of_one_line(run, system):
    done = run("-m", "pytest", "-q", "-m", "perf and cpu")

    assert done.returncode == 4, done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line]
    assert f"only on Linux, and this is {NAMES[system]}; launch on Linux, in WSL2" in line
    assert "Traceback" not in done.stdout


def test_tests_that_launch_nothing_run_on_other_systems(run, pytester):
    (pytester.path / "tests" / "test_own.py").write_text("def test_own():\n    assert True\n")

    done = run("-m", "pytest", "-q", "-m", "not perf")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
