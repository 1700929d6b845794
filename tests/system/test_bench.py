"""``ci/bench``: the command that it gives to pytest, and its end when a job is cancelled.

The real script runs with a set-up that only puts a pytest on the path.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from tests.projects import REPOSITORY

_SETUP = 'root=$(pwd) && export PATH="$root/bin:$PATH"\n'
_WAITING = """#!/usr/bin/env bash
sleep 600 &
trap 'kill $!; echo "what was measured"; exit 2' TERM
echo measuring
wait
"""
_NOTING = '#!/usr/bin/env bash\necho "$DDP_PERF_COMMAND"; echo "$*"\n'
# A driver that does not answer, although there is a device.
_BROKEN = """\
import pynvml
from ddp_perf.system.gpu import nvml
def refuse():
    raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
pynvml.nvmlInit, nvml.nvidia_device = refuse, lambda: "there is /dev/nvidia0"
"""
_OUTLOOK = r"bench: \d+ cores?.*: structure, losses and work exactly; times .*\n"


@pytest.fixture
def start(tmp_path):
    """``start(script, *arguments)`` starts ci/bench where this script is pytest."""
    for directory in ("ci", "bin"):
        (tmp_path / directory).mkdir()
    for name in ("bench", "tier.py"):
        shutil.copy(REPOSITORY / "ci" / name, tmp_path / "ci")
    (tmp_path / "ci" / "setup.sh").write_text(_SETUP)

    def run(script, *arguments, python="", **variables):
        (tmp_path / "sitecustomize.py").write_text(python)
        python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
        for name, text in (("pytest", script), ("python", python)):
            (tmp_path / "bin" / name).write_text(text)
            (tmp_path / "bin" / name).chmod(0o755)
        return subprocess.Popen(
            ["bash", "ci/bench", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell that runs the tests in the background has them ignore signals.
            preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
        )

    return run


def test_a_cancelled_job_ends_with_the_exit_code_of_pytest(start):
    with start(_WAITING) as process:
        assert re.fullmatch(_OUTLOOK, process.stdout.readline())
        assert process.stdout.readline() == "measuring\n"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)

    assert (process.returncode, output) == (2, "what was measured\n")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [([], "./ci/bench"), (["-k", "a b"], r"./ci/bench -k a\ b")],
    ids=["none", "some"],
)
def test_the_command_to_run_again_has_the_arguments_and_no_variable_of_the_environment(
    start, arguments, command
):
    with start(_NOTING, *arguments, arguments=" of another program") as process:
        output, _ = process.communicate(timeout=60)

    assert output.splitlines()[1] == command


def test_a_broken_driver_does_not_make_a_gate_of_gpus_one_of_cpus(start):
    with start(_NOTING, python=_BROKEN) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    (line,) = output.splitlines()
    assert line.startswith("ci/bench: the GPUs cannot be read (NVML: Driver Not Loaded, although")
    assert "state --tier cpu" in line

    with start(_NOTING, "--tier", "cpu", "-k", "loss", python=_BROKEN) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    outlook, command, given = output.splitlines()
    assert re.fullmatch(_OUTLOOK, f"{outlook}\n")
    assert command == "./ci/bench --tier cpu -k loss"
    assert "perf and cpu" in given
    assert given.endswith("-k loss")


@pytest.mark.parametrize("stated", [[], ["tpu"]])
def test_a_wrong_tier_is_4(start, stated):
    with start(_NOTING, "--tier", *stated) as process:
        output, _ = process.communicate(timeout=60)

    assert (process.returncode, output) == (4, "ci/bench: --tier takes cpu or gpu\n")
