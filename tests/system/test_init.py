"""``ddp-perf init`` in a fresh directory: its next command works as printed, with real ranks."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
import yaml

from tests.projects import REPOSITORY

PROGRAMS = {
    "ddp-perf": [sys.executable, "-c", "from ddp_perf.cli.app import app; app()"],
    "pytest": [sys.executable, "-m", "pytest"],
}
WORKFLOW = REPOSITORY / "ci" / "templates" / "own_project" / "training-speed.yml"
# The structure of a step is the same, whatever else runs on the machine.
SMALL = "-k structure --ddp-launches 2 --ddp-steps 12 --ddp-budget 0"


@pytest.fixture
def run(tmp_path):
    """``run(command, exit_code)`` runs a command of ours in a user's project; returns its output.

    The project has tests and a conftest.py of its own, and nothing else that helps an import.
    """
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_own.py").write_text("def test_own(answer): assert answer == 42")
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture\ndef answer():\n    return 42\n"
    )
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    environment |= {"PYTHONPATH": str(REPOSITORY), "PYTHONSAFEPATH": "1", "PYTHONUTF8": "1"}

    def start(command, exit_code=0):
        program, *arguments = shlex.split(command)
        done = subprocess.run(
            [*PROGRAMS[program], *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=600,  # a session waits while another one measures this machine
        )
        assert done.returncode == exit_code, done.stdout
        return done.stdout

    return start


@pytest.mark.slow
def test_the_printed_command_stores_and_the_second_session_judges(run):
    command = run("ddp-perf init").splitlines()[-1].removeprefix("next: ")

    first = run(f"{command} {SMALL}")
    assert " 2 skipped" in first  # stored just now
    second = run(f'pytest -m "perf and cpu" {SMALL}')
    assert " 2 passed" in second


@pytest.mark.slow
def test_a_bare_pytest_runs_the_users_own_tests_and_measures_nothing(run):
    run("ddp-perf init")

    shown = run("pytest")

    assert " 1 passed" in shown.splitlines()[-1]
    assert "ddp:" not in shown
    everything = run('pytest -m "perf and cpu" --collect-only -q')
    assert everything.count("perf_workload.build-none-fp32-ws1-b256]") == 6
    assert everything.count("perf_workload.build-ddp-fp32-ws2-b256]") == 7


def pytest_command(stated):
    """Return the one command of a workflow that runs pytest."""
    (job,) = stated["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    (command,) = [text for text in runs if text.startswith("pytest ")]
    return command


@pytest.mark.slow
def test_the_counts_and_the_workflow_of_a_project_store_and_check(run, tmp_path):
    speed = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    check = "pytest -m work --ddp-strict"
    nightly = pytest_command(speed)
    (copy,) = [
        step["run"].partition("#")[0]
        for step in speed["jobs"]["gate"]["steps"]
        if "cp " in step.get("run", "")
    ]
    run("ddp-perf init")

    run(f"{check} --save-baseline")
    assert " 2 passed" in run(check)
    run(f'pytest -m "perf and cpu" {SMALL} --ddp-launches=1 --save-baseline')
    assert list((tmp_path / "baselines").glob("*.json")) == []  # times need a quiet machine
    subprocess.run(copy, cwd=tmp_path, shell=True, check=True)
    for stored in ("structure", "work"):
        assert (tmp_path / "sessions" / stored).is_dir()
    for first in ("--save-baseline", ""):
        shown = run(f"{nightly.replace('$FIRST', first)} {SMALL}")
        assert " 2 passed" in shown

    assert "@ubuntu-latest.json" in shown
    assert (tmp_path / "sessions" / "history.sqlite").exists()
    for name in ("index.html", "results.json", "junit.xml"):
        assert (tmp_path / "artifacts" / "nightly" / name).exists()
