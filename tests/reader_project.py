"""The project as a reader of the docs has it: with a small suite, in which commands are run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

import yaml

from tests.projects import REPOSITORY

# cpu_quick at a size at which a session takes seconds, and at which noise decides nothing.
SMALL = {
    "batch_sizes": [128],
    "model": {"input_dim": 64, "hidden_dim": 64, "output_dim": 8},
    "steps": 8,
    "warmup": 2,
    "launches": 2,
    "tolerances": dict.fromkeys(
        ("step_time", "tail", "efficiency", "cpu_time", "peak_memory"), 0.9
    ),
}
INI = """\
[pytest]
addopts = -p ddp_perf.plugin --import-mode=importlib --ddp-budget 0 --ddp-explain-budget 0
junit_family = xunit1
pythonpath = .
"""
SETUP = 'root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) && cd "$root"\n'


def make_reader_project(root):
    """Make a copy of the project with a small suite and one stored session of it."""
    shutil.copytree(REPOSITORY / "tests" / "perf", root / "tests" / "perf")
    measured = shutil.ignore_patterns("cpu-*.json")  # on this machine, by ci/bench
    for name in ("baselines", "bench_configs", "ci", "docs"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=measured)
    quick = root / "bench_configs" / "cpu_quick.yaml"
    quick.write_text(yaml.safe_dump(yaml.safe_load(quick.read_text("utf-8")) | SMALL), "utf-8")
    (root / "baselines" / "structure" / "cpu_quick.json").unlink()  # of the full size
    (root / "pytest.ini").write_text(INI, "utf-8")
    (root / "ci" / "setup.sh").write_text(SETUP, "utf-8")
    (root / "bin").mkdir()
    _executable(root / "bin" / "pytest", f'exec {shlex.quote(sys.executable)} -m pytest "$@"')
    command = "from ddp_perf.cli.app import app; app()"
    _executable(
        root / "bin" / "ddp-perf", f'exec {shlex.quote(sys.executable)} -c "{command}" "$@"'
    )
    _executable(root / "bin" / "nvidia-smi", "exit 1")  # ci/bench measures the CPU tier
    run(root, 'pytest -m "perf and cpu" --save-baseline --ddp-json results.json', {0})
    return root


def _executable(path, line):
    path.write_text(f"#!/bin/sh\n{line}\n", "utf-8")
    path.chmod(0o755)


def run(root, command, expected):
    """Run a shell command of a page in the project; its exit code must be an expected one."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "GITHUB_"))
    }
    path = os.pathsep.join([str(root / "bin"), os.environ["PATH"]])
    python_path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=root,
        env={**environment, "PATH": path, "PYTHONPATH": python_path, "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=900,  # a session waits while another one measures this machine
    )
    assert done.returncode in expected, f"{command}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout
