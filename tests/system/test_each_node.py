"""each_node on two "hosts": a shell that runs the command here."""

from __future__ import annotations

import json
import stat

import pytest

SUITE = """
suite: mini
tier: cpu
workload: our_model:build
world_sizes: [1]
batch_sizes: [8]
steps: 12
warmup: 2
launches: 2
"""
# The workload needs the variable: so a rank that trains has the node of its launch.
MODEL = """
import os

import torch
from ddp_perf.workloads.workload import BuildContext, Workload

def build(context: BuildContext) -> Workload:
    print("node", os.environ["OUR_NODE"])
    return Workload(
        model=torch.nn.Linear(16, 16),
        batch=(torch.randn(context.batch_size, 16),),
        loss=lambda module, batch: module(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    )
"""
SHELL = """#!/bin/sh
test "$1" = "$BROKEN_NODE" && exit 7
OUR_NODE="$1" exec sh -c "$2"
"""
TESTS = """
import pytest

@pytest.mark.perf
@pytest.mark.ddp_metric("structure")
def test_structure(ddp_measured, assert_verdict):
    assert_verdict()

@pytest.mark.perf
@pytest.mark.ddp_metric("nodes")
def test_nodes(ddp_measured, assert_verdict):
    assert_verdict()
"""


CLUSTER = """
launcher: ssh
hosts: [a, b]
nproc_per_node: 1
each_node: true
node_shell: "{shell} {{node}}"
"""


@pytest.fixture
def session(pytester, monkeypatch):
    """``session(*options)`` measures each of two nodes, and returns the outcomes and its suite."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the inner run is no worker
    (pytester.path / "suites").mkdir()
    (pytester.path / "suites" / "mini.yaml").write_text(SUITE)
    (pytester.path / "our_model.py").write_text(MODEL)
    shell = pytester.path / "shell"
    shell.write_text(SHELL)
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    pytester.makepyfile(test_ours=TESTS)
    pytester.makeini(
        """
        [pytest]
        addopts = -p ddp_perf.plugin --import-mode=importlib --ddp-budget=0
        pythonpath = .
        ddp_configs = suites
        ddp_baselines = baselines
        """
    )
    (pytester.path / "cluster.yaml").write_text(CLUSTER.format(shell=shell))

    def run(*options):
        results = pytester.path / "results.json"
        each = ("--ddp-cluster=cluster.yaml", *options)
        result = pytester.runpytest("-m", "perf and cpu", "-rs", "--ddp-json", results, *each)
        suites = json.loads(results.read_text())["suites"] if results.exists() else []
        return result, suites[0] if suites else None

    return run


@pytest.mark.slow
def test_each_node_launches_the_case_and_one_that_fails_is_named(session, monkeypatch, pytester):
    first, suite = session("--ddp-machine=fleet", "--save-baseline")

    first.assert_outcomes(skipped=2)  # stored just now; two nodes do not show which is slower
    (measured,) = suite["measurements"].values()
    assert [(one["round"], one["node"]) for one in measured["launches"]] == [
        (0, "a"),
        (0, "b"),
        (1, "b"),
        (1, "a"),
    ]
    kept = pytester.path / "artifacts" / "output" / "mini"
    assert any("node " in file.read_text() for file in kept.rglob("*") if file.is_file())
    first.stdout.fnmatch_lines(["*mini on *, each of 2 nodes of pool fleet*"])

    monkeypatch.setenv("BROKEN_NODE", "b")
    second, suite = session("--ddp-machine=fleet", "--ddp-launches=1")

    second.assert_outcomes(failed=1, passed=1)  # the code is judged over the other node
    (measured,) = suite["measurements"].values()
    assert [one["node"] for one in measured["launches"]] == ["a"]
    (failure,) = measured["failures"]
    assert failure["node"] == "b"
    nodes = {one["metric"]: one["verdict"] for one in suite["findings"]}["nodes"]
    assert nodes["outcome"] == "BAD NODE"
    assert "node b: " in nodes["reason"]
    assert "exit code 7" in nodes["reason"]
    second.stdout.fnmatch_lines(["*--ddp-cluster=cluster.yaml*"])  # again


@pytest.mark.slow
def test_a_strict_session_without_a_test_of_its_nodes_is_red_if_one_fails(
    session, monkeypatch, pytester
):
    """The healthy node gives the case its verdicts."""
    structure, _, _ = TESTS.rpartition("@pytest.mark.perf")
    pytester.makepyfile(test_ours=structure)
    session("--ddp-machine=fleet", "--save-baseline", "--ddp-launches=1")
    monkeypatch.setenv("BROKEN_NODE", "b")

    loose, _ = session("--ddp-machine=fleet", "--ddp-launches=1")
    strict, _ = session("--ddp-machine=fleet", "--ddp-launches=1", "--ddp-strict")

    loose.assert_outcomes(passed=1)
    loose.stdout.fnmatch_lines(["*BAD NODE (no test): *"])
    strict.assert_outcomes(errors=1)
    assert strict.ret == pytest.ExitCode.TESTS_FAILED
    assert "--ddp-strict: BAD NODE" in strict.stdout.str()
    assert "node b: " in strict.stdout.str()


def test_the_baseline_of_cpu_nodes_needs_a_name_before_anything_is_launched(session):
    refused, suite = session()

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*each_node: the nodes share one baseline; name it with*"])
    assert suite is None
