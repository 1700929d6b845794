"""The gate from end to end, on real ranks: slower or changed work is red."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.core.verdict import Outcome
from ddp_perf.history.store import HistoryStore
from ddp_perf.session.result import read_results

REPOSITORY = Path(__file__).parents[2]
WORKLOADS = Path(__file__).parent / "workloads"

SUITE = """
suite: slowed
tier: cpu
workload: slowed:build
model: {switch: switch}  # relative: the same work in every copy
world_sizes: [1, 2]
batch_sizes: [128]
steps: 14
warmup: 4
launches: 3
# Wide: the sleep makes a step four times as long, and the neighbours of a test are noisy. They
# must not take the step time's tolerance from the cores, or nothing would be judged.
tolerances: {step_time: 0.9, tail: null, efficiency: null, cpu_time: null, peak_memory: null}
"""
STRICT = "step_time: 0.1, tail: 0.1, efficiency: 0.1, cpu_time: 0.8"
INI = """
[pytest]
addopts =
    -p ddp_perf.plugin -p no:cacheprovider --import-mode=importlib
    -m cpu --ddp-budget=10s
junit_family = xunit1
pythonpath = .
filterwarnings =
    error
    ignore::pytest.PytestAssertRewriteWarning
"""


@pytest.fixture(autouse=True)
def _inner_sessions_share_servers():
    """They do not: the workload opens a file of the directory in which its server was started."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A project whose own workload has a stored baseline, measured once."""
    path = tmp_path_factory.mktemp("stored")
    shutil.copytree(REPOSITORY / "tests" / "perf", path / "tests")
    shutil.copy(WORKLOADS / "slowed.py", path)
    (path / "bench_configs").mkdir()
    (path / "bench_configs" / "slowed.yaml").write_text(SUITE, encoding="utf-8")
    (path / "pytest.ini").write_text(INI, encoding="utf-8")
    (path / "switch").touch()
    saved = subprocess.run(
        [sys.executable, "-m", "pytest", "--save-baseline"],
        cwd=path,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    assert "judge the next session against what is stored" in saved.stdout, saved.stdout
    return path


@pytest.fixture
def slowed(stored, pytester, monkeypatch):
    """A copy of that project, and the switch that changes its workload."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the inner run is no worker
    shutil.copytree(stored, pytester.path, dirs_exist_ok=True)
    return pytester, pytester.path / "switch"


def _failures(path):
    """Return the failed test functions of the two-rank case in a JUnit file, with messages."""
    return {
        case.get("name").partition("[")[0]: case.find("failure").get("message")
        for case in ElementTree.parse(path).iter("testcase")
        if case.find("failure") is not None
    }


def test_a_slower_step_is_red_in_junit_with_its_figures(slowed):
    project, switch = slowed
    switch.write_text("sleep")
    project.runpytest("-k", "step_time and ws2", "--junitxml=junit.xml")
    failures = _failures(project.path / "junit.xml")
    assert failures.keys() == {"test_step_time"}
    message = failures["test_step_time"]
    assert "REGRESSION: step time" in message
    assert "× the baseline of 20" in message
    assert "interval" in message


@pytest.mark.slow
def test_a_known_regression_is_expected_and_goes_into_the_history(slowed, monkeypatch):
    project, switch = slowed
    monkeypatch.chdir(project.path)
    case_id = "slowed.build-ddp-fp32-ws2-b128"
    until = (datetime.date.today() + datetime.timedelta(days=30)).isoformat()
    said = CliRunner().invoke(
        app,
        [
            *("baseline", "ack", case_id, "--reason", "see #12"),
            *("--until", until, "--at-most", "1000"),
            *("--metric", "step_time"),
        ],
    )
    assert said.exit_code == 0, said.output
    switch.write_text("sleep")

    result = project.runpytest("-k", "step_time and ws2", "--ddp-history=sqlite:///history.sqlite")

    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.OK
    shown = " ".join(result.stdout.str().split())
    assert "(known)" in shown
    assert f'"see #12"; expected until {until}' in shown
    assert "appended to the history sqlite:///history.sqlite" in shown
    with contextlib.closing(HistoryStore("sqlite:///history.sqlite", create=False)) as store:
        (case,) = [case for case in store.cases() if case.case_id == case_id]
        (session,) = store.series(case, "step_time").sessions
    assert session.figure.verdict is not None
    assert session.figure.verdict.outcome is Outcome.REGRESSION


def levels(baseline):
    """Return the step times of all stored sessions, by case id."""
    cases = json.loads(baseline.read_text())["cases"]
    stored = {
        case_id: [session["launches"].get("step_time") for session in case["sessions"]]
        for case_id, case in cases.items()
    }
    return {case_id: [one for one in found if one] for case_id, found in stored.items()}


@pytest.mark.slow
def test_times_beside_busy_processes_are_invalid_and_not_saved(slowed):
    project, switch = slowed
    suite = project.path / "bench_configs" / "slowed.yaml"
    suite.write_text(re.sub("step_time: .*, cpu_time: null", STRICT, suite.read_text()))
    (baseline,) = (project.path / "baselines").glob("*.json")
    before = levels(baseline)
    switch.write_text("neighbours")

    result = project.runpytest(
        *("--ddp-steps=40", "--ddp-launches=2", "--ddp-budget=0", "--save-baseline=append"),
        "--ddp-json=results.json",
    )

    disturbed = "2 of 2 launches were disturbed, because other processes took"
    output = " ".join(result.stdout.str().split())
    assert f": {disturbed}" in output  # not stored, or stored without the step time
    assert levels(baseline) == before
    (measured,) = read_results(project.path / "results.json").suites
    assert len(measured.findings) == 11
    for finding in measured.findings:
        if finding.metric in ("structure", "loss"):
            assert finding.verdict.outcome == "PASS"
        elif finding.metric != "cpu_time":  # disturbed only beyond 40 %, which they may take
            assert finding.verdict.outcome == "INVALID"
            assert finding.reason.startswith(disturbed)
    assert result.ret == pytest.ExitCode.OK


def test_one_more_collective_fails_the_structure_exactly(slowed):
    project, switch = slowed
    switch.write_text("all_reduce")
    project.runpytest("-k", "structure and ws2", "--ddp-launches=1", "--junitxml=junit.xml")
    failures = _failures(project.path / "junit.xml")
    assert failures.keys() == {"test_structure"}
    assert "1 all_reduce of 4,096 bytes (float32) more a step" in failures["test_structure"]


@pytest.mark.slow
def test_changed_work_is_incomparable_and_a_changed_override_has_no_baseline(slowed):
    project, _ = slowed
    path = project.path / "bench_configs" / "slowed.yaml"
    path.write_text(path.read_text().replace("switch: ", "hidden_dim: 256, switch: "))
    result = project.runpytest("-k", "structure and ws2", "--ddp-launches=1")
    result.stdout.fnmatch_lines(["*is of other work: model.hidden_dim unset → 256*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result = project.runpytest("-k", "structure and ws2", "--ddp-launches=1", "--ddp-env=A=1")
    result.stdout.fnmatch_lines(["NO_BASELINE: structure of *ws2-b128-A=1*"])
