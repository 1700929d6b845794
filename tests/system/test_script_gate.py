"""A user's training script in whole pytest sessions: stored, edited, and red with its cause."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tests.projects import REPOSITORY

pytestmark = pytest.mark.slow

SCRIPT = """
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
batch_size = parser.parse_args().batch_size
distributed = int(os.environ["WORLD_SIZE"]) > 1
if distributed:
    dist.init_process_group("gloo")
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)])
if distributed:
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100_000):
    batch = torch.randn(batch_size, 256)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""
SUITE = """
suite: ours
tier: cpu
script: train.py
args: [--batch-size, "{batch_size}"]
world_sizes: [1, 2]
batch_sizes: [16]
steps: 12
warmup: 2
launches: 2
# Wide: what is tested is exact, or many times as long.
tolerances: {step_time: 0.9, tail: null, efficiency: null, cpu_time: null, peak_memory: null}
"""
INI = """
[pytest]
addopts =
    -p ddp_perf.plugin -p no:cacheprovider --import-mode=importlib
    --ddp-config=suite.yaml --ddp-budget=0
junit_family = xunit1
pythonpath = .
filterwarnings =
    error
    ignore::pytest.PytestAssertRewriteWarning
"""
TWO = "train-ws2-b16"
WAIT_S = 0.1


def run(path, *arguments):
    """Run a session of the project, and return all that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "perf and cpu", *arguments],
        cwd=path,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with a script, whose baseline was stored."""
    path = tmp_path_factory.mktemp("project")
    shutil.copytree(REPOSITORY / "tests" / "perf", path / "tests")
    (path / "train.py").write_text(SCRIPT, encoding="utf-8")
    (path / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (path / "pytest.ini").write_text(INI, encoding="utf-8")
    stored = run(path, "--save-baseline")
    assert "judge the next session against what is stored" in stored, stored
    return path


@pytest.fixture(scope="module")
def edited(project):
    """A session after an edit: larger batches, which are late, and smaller buckets."""
    slower = SCRIPT.replace("randn(batch_size", "randn(2 * batch_size")
    slower = slower.replace("    batch =", f"    time.sleep({WAIT_S})\n    batch =")
    slower = slower.replace("Parallel(model)", "Parallel(model, bucket_cap_mb=0.3)")
    (project / "train.py").write_text(slower, encoding="utf-8")
    screen = run(project, "--ddp-json=r.json", "--ddp-report=page", "--junitxml=j.xml", "-vv")
    results = json.loads((project / "r.json").read_text(encoding="utf-8"))
    line = 1 + slower.splitlines().index("    optimizer.step()")
    return screen, results["suites"][0], project, f"train.py:{line} (1 backward pass, 1 optimizer)"


def test_an_edit_of_the_script_is_red_with_what_a_step_does_more(edited):
    _, result, path, _ = edited
    failed = {
        case.get("name"): case.find("failure").get("message")
        for case in ElementTree.parse(path / "j.xml").iter("testcase")
        if case.find("failure") is not None
    }

    assert "the step computes more than the baseline's" in failed["test_structure[train-ws1-b16]"]
    assert "FLOPs of a step" in failed["test_structure[train-ws1-b16]"]
    assert "more a step" in failed[f"test_structure[{TWO}]"]
    assert "buckets" in failed[f"test_structure[{TWO}]"]
    probe = result["measurements"][TWO]["launches"][0]["ranks"][0]["probe"]
    assert min(probe["phases"]["data"]) >= WAIT_S


def test_the_screens_state_nothing_that_a_script_does_not_have(edited):
    screen, _, path, step = edited
    page = (path / "page" / "index.html").read_text(encoding="utf-8")
    files = [one.read_text(encoding="utf-8") for one in (path / "page").glob("*.[mct][dsx][vt]*")]

    assert f"Step ends at     : {step}" in screen
    assert f"a step ends at {step}" in page
    assert "next: " in screen
    assert "loss" not in screen
    for text in (screen, page, *files):
        assert ">None<" not in text
        assert "fp32" not in text


def test_the_cases_have_the_marks_and_metrics_of_the_suite(project):
    listed = run(project, "--collect-only", "-q", "--ddp-batch-sizes=8,16")

    ids = [line.rpartition("::")[2] for line in listed.splitlines() if "::" in line]
    assert ids == [
        f"{test}[train-ws{ranks}-b{size}]"
        for test in ("test_structure", "test_step_time")
        for size in (8, 16)
        for ranks in (1, 2)
    ]


def test_what_only_a_workload_has_is_refused_before_a_launch(project):
    assert "a script builds DDP itself" in run(project, "--ddp-inject=no-overlap")
