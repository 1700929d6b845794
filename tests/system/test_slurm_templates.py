"""The batch scripts of ci/templates/slurm, submitted to a real Slurm as a user submits them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.projects import REPOSITORY, TINY

TEMPLATES = sorted((REPOSITORY / "ci" / "templates" / "slurm").glob("*.sbatch"))
PYTEST = """\
[pytest]
addopts = -p ddp_perf.plugin --import-mode=importlib
pythonpath = .
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a tiny suite, in whose root a user submits a job."""
    root = tmp_path / "project"
    shutil.copytree(REPOSITORY / "tests" / "perf", root / "tests" / "perf")
    shutil.copytree(REPOSITORY / "ci" / "templates", root / "ci" / "templates")
    shutil.copy(REPOSITORY / "ci" / "nightly", root / "ci" / "nightly")
    programs = root / "bin"
    programs.mkdir()
    (programs / "pytest").write_text(f'#!/bin/sh\nexec {sys.executable} -m pytest "$@"\n')
    (programs / "pytest").chmod(0o755)
    (root / "ci" / "setup.sh").write_text(f"cd {root}\nexport PATH={programs}:$PATH\n")
    (root / "pytest.ini").write_text(PYTEST)
    (root / "bench_configs").mkdir()
    (root / "bench_configs" / "tiny.yaml").write_text(TINY)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return root


def submit(cluster, root, name, *options, **variables):
    """Submit a template, wait for its end, and return its exit code and its log.

    ``sbatch --wait`` asks ever more rarely, up to half a minute late.
    """
    job = subprocess.run(
        ["sbatch", "--parsable", *options, f"ci/templates/slurm/{name}.sbatch"],
        cwd=root,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()

    def record():
        return cluster.run("scontrol", "show", "job", "--oneliner", job)

    cluster.until(lambda: not re.search(r"JobState=(PENDING|RUNNING|COMPLETING)", record()))
    log = "\n".join(path.read_text() for path in sorted(root.glob("ddp-perf-*.log")))
    return int(re.search(r" ExitCode=(\d+):", record())[1]), log


def cases_in(path: Path) -> list[str]:
    (suite,) = json.loads(path.read_text(encoding="utf-8"))["suites"]
    return list(suite["measurements"])


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_slurm_accepts_the_template_and_so_does_bash(cluster, path):
    subprocess.run(["bash", "-n", str(path)], check=True)
    done = subprocess.run(
        ["sbatch", "--test-only", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"Job \d+ to start at", done.stderr)


def test_there_is_a_template_for_one_node_for_nodes_and_for_world_sizes():
    assert [path.stem for path in TEMPLATES] == ["nodes", "one_node", "world_sizes"]


TO_THE_END = (0, 1, 75)  # of ci/nightly, on a machine that may be too busy for a verdict
TINY_GATE = "--tier cpu --ddp-launches 2 --ddp-budget 0"


def test_one_node_is_gated(cluster, project):
    code, log = submit(cluster, project, "one_node", GATE=TINY_GATE)

    assert code in TO_THE_END, log
    found = cases_in(project / "artifacts" / "nightly" / "results.json")
    assert [re.search(r"ws\d", case)[0] for case in found] == ["ws1", "ws2"], log


def test_nodes_are_gated_by_job_steps(cluster, project):
    gate = f"{TINY_GATE} --ddp-world-sizes 2"  # test_slurm.py measures one node, too
    (project / "cluster.yaml").write_text("launcher: slurm\nnproc_per_node: 1\n")
    code, log = submit(cluster, project, "nodes", GATE=gate, CLUSTER="cluster.yaml")

    assert code in TO_THE_END, log
    found = cases_in(project / "artifacts" / "nightly" / "results.json")
    assert [re.search(r"ws\d[-x\d]*(?=-b)", case)[0] for case in found] == ["ws2-2x1"], log


def test_each_world_size_is_a_job_of_an_array(cluster, project):
    code, log = submit(cluster, project, "world_sizes", "--array=0", GATE=TINY_GATE)

    assert code in TO_THE_END, log
    found = cases_in(project / "artifacts" / "world-size-2" / "results.json")
    assert [re.search(r"ws\d", case)[0] for case in found] == ["ws1", "ws2"], log


def test_the_exit_code_of_the_job_is_that_of_the_gate(cluster, project):
    code, log = submit(cluster, project, "one_node", GATE="--tier cpu -k nothing")

    assert code == 5, log
