"""Duels of two commits with real ranks: the slower one is found, with its line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.projects import REPOSITORY

WORKLOAD = """
import torch
from torch import nn

from ddp_perf.workloads.workload import Workload


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 256), nn.Linear(256, 8)

    def forward(self, x):
        x = self.first(x).relu()
        return self.second(x)


def build(context):
    model = Net()
    return Workload(
        model=model,
        batch=(torch.ones(context.batch_size, 256),),
        loss=lambda module, batch: module(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        blocks=[model.first, model.second],
    )
"""
SLOWED = WORKLOAD.replace(
    "        x = self.first(x).relu()\n",
    "        for _ in range(8):\n            x = self.first(x).relu().tanh()\n",
)
BROKEN = WORKLOAD.replace("model = Net()", "model = Net(missing)")
SUITE = """
suite: own
tier: cpu
workload: own_workload:build
world_sizes: [1]
batch_sizes: [64]
steps: 8
warmup: 2
launches: 3
start_deadline_s: 60
"""
CASE = "own_workload.build-none-fp32-ws1-b64"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with three commits: fast, slow, broken. The slow one is checked out."""
    root = tmp_path_factory.mktemp("project")
    (root / "bench_configs").mkdir()
    (root / "bench_configs" / "own.yaml").write_text(SUITE, encoding="utf-8")
    _git(root, "init", "--quiet", "--initial-branch=main")
    for name, text in (("fast", WORKLOAD), ("broken", BROKEN), ("slow", SLOWED)):
        (root / "own_workload.py").write_text(text, encoding="utf-8")
        _git(root, "add", "--all")
        _git(root, "commit", "--quiet", f"--message={name}")
        _git(root, "tag", name)
    return root


def _git(root, *arguments):
    identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True)


def duel(root, *arguments):
    """Run the command as a user does: Python finds the tree's own files first."""
    return subprocess.run(
        [sys.executable, "-c", "from ddp_perf.cli.app import app; app()", "duel", *arguments],
        cwd=root,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "XDG_CACHE_HOME": str(root.parent / "cache"),
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def test_a_slower_commit_is_red_and_its_line_is_named(repository):
    done = duel(repository, "fast", "--budget", "10m", "--json")

    assert done.returncode == 1, done.stderr
    (results,) = (repository / "artifacts" / "duel").glob("*.json")
    (case,) = json.loads(results.read_text(encoding="utf-8"))["duel"]["cases"]
    (line,) = case["lines"]
    assert (line["file"], line["text"]) == ("own_workload.py", "x = self.first(x).relu().tanh()")
    terms = {term["name"]: term for term in case["explanation"]["terms"]}
    assert terms["forward"]["after_s"] > 2 * terms["forward"]["before_s"]
    assert "own_workload.py" in done.stdout


@pytest.mark.slow
def test_the_reverse_is_faster(repository):
    done = duel(repository, ".", "fast", "--budget", "10m", "--case", CASE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "FASTER" in done.stdout


@pytest.mark.slow
def test_a_side_that_fails_is_reported_with_its_output(repository):
    done = duel(repository, "fast", "broken", "--budget", "10m")

    assert done.returncode == 1, done.stderr
    assert "name 'missing' is not defined" in done.stdout
