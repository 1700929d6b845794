"""The second stage with real ranks: unchanged code, a slower edit, and its return."""

from __future__ import annotations

import json
import os

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import read_results
from tests.projects import make_project
from tests.repositories import Repository

SUITE = """
suite: own
tier: cpu
workload: model:build
world_sizes: [2]
batch_sizes: [4]
steps: 8
warmup: 2
launches: 3
# Wide: the edit makes a step several times as long, and the machine may be busy.
tolerances: {step_time: 0.95, tail: null, cpu_time: null, peak_memory: null}
"""
MODEL = """\
import time
from dataclasses import replace

from ddp_perf.workloads import mlp


def build(context):
    workload = mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)

    def loss(module, batch):
        time.sleep(0.005)
        return workload.loss(module, batch)

    return replace(workload, loss=loss)
"""
SLOWER = MODEL.replace("sleep(0.005)", "sleep(0.040)")
OPTIONS = "--ddp-settle=90s --ddp-budget=10s"
CASE = "model.build-ddp-fp32-ws2-b4"


class Sessions:
    """Sessions of a project in git, one after the other, each of which is stored."""

    def __init__(self, pytester):
        self.path = pytester.path
        self._pytester = pytester

    def run(self, *arguments):
        """Return pytest's result, and that of the suite."""
        options = ("-m", "cpu", "-p", "no:cacheprovider", "--ddp-json=results.json")
        done = self._pytester.runpytest(*options, *arguments)
        (suite,) = read_results(self.path / "results.json").suites
        return done, suite

    def newest(self):
        """Return the newest stored session."""
        (file,) = (self.path / "baselines").glob("*.json")
        (case,) = json.loads(file.read_text(encoding="utf-8"))["cases"].values()
        return case["sessions"][-1]

    def patches(self):
        return sorted((self.path / "baselines" / "code").glob("*.patch"))


@pytest.fixture
def sessions(pytester, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    make_project(pytester, monkeypatch, addopts=OPTIONS, own=SUITE)
    repository = Repository(pytester.path)
    repository.write({"model.py": MODEL})
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--message", "a project")
    return Sessions(pytester)


@pytest.mark.slow
def test_an_edit_is_red_with_its_line_and_green_once_it_is_taken_back(sessions):
    done, _ = sessions.run("--save-baseline")
    assert sessions.newest()["tree"]
    assert sessions.patches() == []

    done, result = sessions.run("--save-baseline=append")
    assert done.ret == pytest.ExitCode.OK
    assert {one.verdict.outcome for one in result.findings} <= {Outcome.PASS, Outcome.IMPROVEMENT}
    assert (result.settled[CASE].unchanged, result.settled[CASE].pairs) == (True, 0)

    (sessions.path / "model.py").write_text(SLOWER, encoding="utf-8")
    done, result = sessions.run("--save-baseline=append")
    settled = result.settled[CASE]
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert result.finding(CASE, "step_time").verdict.outcome is Outcome.REGRESSION
    assert settled.pairs >= 6
    assert settled.changed == ("model.py, which its workload imports",)
    assert settled.causes == ("changed line: model.py:11: time.sleep(0.040)",)
    done.stdout.fnmatch_lines(
        ["*model.py:11: time.sleep(0.040)*", f"next: git diff {settled.commit}"]
    )
    newest = sessions.newest()
    assert newest["verdicts"]["step_time"] == "REGRESSION"
    (patch,) = sessions.patches()
    assert patch.stem == newest["tree"]
    assert b"+        time.sleep(0.040)" in patch.read_bytes()

    (sessions.path / "model.py").write_text(MODEL, encoding="utf-8")
    done, result = sessions.run("--save-baseline=append")
    assert done.ret == pytest.ExitCode.OK
    assert result.settled[CASE].unchanged
    assert "step_time" not in sessions.newest().get("verdicts", {})
