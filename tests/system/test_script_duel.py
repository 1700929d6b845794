"""Duels of a script between revisions: each side runs its own, with its own neighbours."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.projects import REPOSITORY

SCRIPT = """
import sys

import torch

from layers import Body

model = torch.nn.Sequential(Body(), torch.nn.Linear(256, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.ones(int(sys.argv[1]), 256)).square().mean().backward()
    optimizer.step()
"""
LAYERS = """
import torch


class Body(torch.nn.Linear):
    def __init__(self):
        super().__init__(256, 256)

    def forward(self, x):
        return super().forward(x).relu()
"""
SLOWED = LAYERS.replace(
    "        return super().forward(x).relu()\n",
    "        for _ in range(8):\n            x = super().forward(x).relu().tanh()\n"
    "        return x\n",
)
SUITE = """
suite: own
tier: cpu
script: jobs/train.py
args: ["{batch_size}"]
world_sizes: [1]
batch_sizes: [64]
steps: 8
warmup: 2
launches: 3
start_deadline_s: 60
"""
TESTS = """
import pytest

@pytest.mark.perf
@pytest.mark.ddp_metric("step_time")
def test_step_time(ddp_measured, assert_verdict):
    assert_verdict()
"""
INI = "[pytest]\naddopts = -p ddp_perf.plugin --import-mode=importlib\n"
CASE = "train-ws1-b64"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository of three commits: without the script, fast, and slow, which is the tree."""
    root = tmp_path_factory.mktemp("project")
    files = {
        "bench_configs/own.yaml": SUITE,
        "test_own.py": TESTS,
        "pytest.ini": INI,
        ".gitignore": "artifacts/\n__pycache__/\n",
    }
    write(root, files)
    _git(root, "init", "--quiet", "--initial-branch=main")
    commit(root, "without")
    write(root, {"jobs/train.py": SCRIPT, "jobs/layers.py": LAYERS, "jobs/other.py": "A = 1\n"})
    commit(root, "fast")
    write(root, {"jobs/layers.py": SLOWED})
    commit(root, "slow")
    return root


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def commit(root, name):
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", f"--message={name}")
    _git(root, "tag", name)


def _git(root, *arguments):
    identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True)


def run(root, *command):
    """Run a command as a user does: Python finds the tree's own files first."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=root,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "XDG_CACHE_HOME": str(root.parent / "cache"),
            "COLUMNS": "300",
        },
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def duel(root, *arguments):
    return run(root, "-c", "from ddp_perf.cli.app import app; app()", "duel", *arguments)


@pytest.mark.slow
def test_a_revision_whose_script_imports_a_slower_module_is_red(repository):
    done = duel(repository, "fast", "--budget", "10m", "--json")

    assert done.returncode == 1, done.stderr
    (results,) = (repository / "artifacts" / "duel").glob("*.json")
    (case,) = json.loads(results.read_text(encoding="utf-8"))["duel"]["cases"]
    assert case["cases"]["b"]["id"] == CASE
    assert case["failures"] == []
    assert {line["file"] for line in case["lines"]} == {"jobs/layers.py"}
    terms = {term["name"]: term for term in case["explanation"]["terms"]}
    assert terms["forward"]["after_s"] > 2 * terms["forward"]["before_s"]


def test_a_revision_without_the_script_is_refused_though_the_tree_has_it(repository):
    done = duel(repository, "without", "--budget", "10m")

    assert done.returncode == 4, done.stdout
    assert f"{CASE}: side A (without" in done.stderr
    assert "script: there is no file jobs/train.py in without" in done.stderr


def test_a_comment_in_a_file_that_the_script_does_not_read_launches_nothing(repository):
    (repository / "jobs" / "other.py").write_text("# The first letter.\nA = 1\n", encoding="utf-8")

    done = run(
        repository,
        "-m",
        "pytest",
        "-m",
        "perf and cpu",
        "-rs",
        "--ddp-against=slow",
        "--ddp-touched",
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 skipped" in done.stdout
    assert "none is its suite file, and jobs/train.py reads none of them" in done.stdout
    assert "duel of" not in done.stdout
