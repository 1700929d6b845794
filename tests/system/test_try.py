"""``ddp-perf try`` in a directory with only a script: it measures, and its next commands work."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

TRAIN = """import argparse
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
batch_size = parser.parse_args().batch_size
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.randn(batch_size, 64)).square().mean().backward()
    optimizer.step()
"""
PROGRAMS = {
    "ddp-perf": [sys.executable, "-c", "from ddp_perf.cli.app import app; app()"],
    "pytest": [sys.executable, "-m", "pytest"],
}
SHORT = "--launches 1 --steps 12"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("a project")
    (path / "train.py").write_text(TRAIN)
    return path


def run(command, directory):
    """Run commands of ours, as in ``a && b``; return what the last one printed on stdout."""
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    environment |= {"PYTHONUTF8": "1", "COLUMNS": "100"}
    for each in command.split(" && "):
        words = shlex.split(each)
        program, *arguments = words[1:] if "=" in words[0] else words  # a variable that is set
        done = subprocess.run(
            [*PROGRAMS[program], *arguments],
            cwd=directory,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=600,  # a session waits while another one measures this machine
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def next_command(shown):
    return shown.splitlines()[-1].removeprefix("next: ")


@pytest.mark.slow
def test_from_a_script_alone_to_a_stored_session_by_the_commands_that_are_printed(directory):
    first = run(f"ddp-perf try train.py {SHORT} --world-sizes 1,2 -- --batch-size 16", directory)
    assert "effi-" in first
    assert "a step ends at train.py:15 (1 backward pass, 1 optimizer)" in first
    assert [path.name for path in directory.iterdir()] == ["train.py"]

    written = run(next_command(first), directory)
    assert "--write bench_configs/train.yaml -- --batch-size 16" in next_command(first)
    # The structure of a step is the same, whatever else runs on the machine.
    measured = run(
        f"{next_command(written)} -k structure --ddp-launches 1 --ddp-budget 0", directory
    )

    assert " 2 skipped" in measured  # stored just now
    assert (directory / "baselines" / "structure" / "train.json").exists()
