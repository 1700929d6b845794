"""``ddp-perf doctor`` on this machine, with the installed torch."""

from __future__ import annotations

import json

import torch
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.system.gpu.gpus import find_gpus
from ddp_perf.system.host.host import allowed_cores


def test_doctor_shows_this_machine_and_the_tiers_that_it_can_gate():
    done = CliRunner().invoke(app, ["doctor", "--json"])

    assert done.exit_code in (0, 1), done.output
    found = json.loads(done.stdout)
    assert found["host"]["cores"] == list(allowed_cores())
    assert found["runtime"]["torch"] == torch.__version__
    gpu, cpu, *_ = found["abilities"]
    count = len(allowed_cores())
    assert cpu.startswith("cpu: one rank" if count == 1 else f"cpu: up to {count} ranks")
    fit = bool(find_gpus().gpus) and torch.version.cuda is not None
    assert gpu.startswith("gpu: nothing: ") != fit
    assert (done.exit_code == 0) == (found["spoilers"] == [])
