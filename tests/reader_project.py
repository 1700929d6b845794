"""The project as a reader of the docs has it: with a small suite, in which commands are run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from tests.projects import REPOSITORY

# A suite with which a session takes seconds, and in which noise decides nothing.
SHORT = {
    "steps": 8,
    "warmup": 2,
    "launches": 2,
    "tolerances": dict.fromkeys(
        ("step_time", "tail", "efficiency", "cpu_time", "peak_memory"), 0.9
    ),
}
SMALL = {
    **SHORT,
    "batch_sizes": [128],
    "model": {"input_dim": 64, "hidden_dim": 64, "output_dim": 8},
}
# What a step of the other CPU suites computes is no part of what the pages show.
NARROW = {"d_model": 16, "dim_feedforward": 32, "vocab_size": 256, "max_seq_len": 16}
INI = """\
[pytest]
addopts = -p ddp_perf.plugin --import-mode=importlib --ddp-budget 0
junit_family = xunit1
pythonpath = .
"""
SETUP = 'root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) && cd "$root"\n'


def make_reader_project(root, **fields):
    """Make a copy of the project with small suites and one stored session of cpu_quick.

    ``fields`` replace some of that suite's. Each other CPU suite has a narrow model, and the last
    one of its techniques and collectives: tests/correctness/test_global_batch.py trains with every
    technique, and tests/system/test_collectives.py runs every collective.
    """
    for name in ("perf", "work"):
        shutil.copytree(REPOSITORY / "tests" / name, root / "tests" / name)
    measured = shutil.ignore_patterns("cpu-*.json")  # on this machine, by ci/bench
    for name in ("baselines", "bench_configs", "ci", "docs"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=measured)
    change_suite(root / "bench_configs" / "cpu_quick.yaml", SMALL | fields)
    for suite in (root / "bench_configs" / "cpu").glob("*.yaml"):
        stated = yaml.safe_load(suite.read_text("utf-8"))
        change_suite(suite, last_alone(stated) | narrow(stated))
    for pattern in ("cpu_quick.json", "*_cpu.json"):
        for stored in (root / "baselines").glob(f"*/**/{pattern}"):
            stored.unlink()  # of the full size
    (root / "pytest.ini").write_text(INI, "utf-8")
    (root / "ci" / "setup.sh").write_text(SETUP, "utf-8")
    (root / "bin").mkdir()
    programs = {
        "python": "",
        "pytest": "-m pytest",
        "torchrun": "-m torch.distributed.run",
        "ddp-perf": '-c "from ddp_perf.cli.app import app; app()"',
    }
    for name, arguments in programs.items():
        line = f'exec {shlex.quote(sys.executable)} {arguments} "$@"'
        _executable(root / "bin" / name, line)
    run(root, 'pytest -m "perf and cpu" --save-baseline --ddp-json results.json', {0})
    return root


def change_suite(path, fields):
    """Replace fields of a suite file."""
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text("utf-8")) | fields), "utf-8")


def last_alone(suite):
    """Return the fields of a suite that list what it measures, each with its last entry alone."""
    listed = {name: suite[name] for name in ("collectives", "comm_hooks", "sizes") if name in suite}
    shortened = {name: values[-1:] for name, values in listed.items()}
    if techniques := suite.get("techniques"):
        shortened["techniques"] = dict(list(techniques.items())[-1:])
    return shortened


def narrow(suite):
    """Return the model of a suite, if it has one, with the sizes of NARROW in place of its own."""
    if "model" not in suite:  # it measures collectives
        return {}
    model = suite["model"]
    return {"model": model | {name: NARROW[name] for name in model if name in NARROW}}


def _executable(path, line):
    path.write_text(f"#!/bin/sh\n{line}\n", "utf-8")
    path.chmod(0o755)


def run(root, command, expected):
    """Run a shell command of a page in the project; its exit code must be an expected one."""
    simple = command.startswith("ddp-perf ") and not re.search(r"[&|;<>$*\\]", command)
    code, output = (_run_here if simple else _run_in_shell)(root, command)
    assert code in expected, f"{command}: exit code {code}\n{output}"
    return output


def _run_here(root, command):
    """Run a command of ours in this process: a new one takes a second to import it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name in set(os.environ) - set(_environment()):
            patch.delenv(name)
        done = CliRunner().invoke(
            app, shlex.split(command, comments=True)[1:], catch_exceptions=False
        )
    return done.exit_code, done.output


def _run_in_shell(root, command):
    path = os.pathsep.join([str(root / "bin"), os.environ["PATH"]])
    python_path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=root,
        env={**_environment(), "PATH": path, "PYTHONPATH": python_path, "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=900,  # a session waits while another one measures this machine
    )
    return done.returncode, done.stdout


def _environment():
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "GITHUB_"))
    }
