"""``ddp-perf doctor``: the exit code shows if this machine is fit."""

from __future__ import annotations

import json

import msgspec
import pytest
from typer.testing import CliRunner

import ddp_perf.cli.inspect as command
from ddp_perf.cli.app import app
from ddp_perf.errors import LaunchError
from ddp_perf.system.host.host import HostState
from tests.builders import RUNTIME, FakeLauncher, make_gpu_machine
from tests.recordings import RecordedReader

DEBUGGING = ("CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_DISTRIBUTED_DEBUG")
HOST = HostState(name="node7", cpu="Some Processor", cores=tuple(range(256)))


@pytest.fixture
def run(monkeypatch):
    """``run(reader, *arguments)`` on a replayed machine with a fit host."""
    for name in ("CUDA_VISIBLE_DEVICES", *DEBUGGING):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(command, "read_host_state", lambda: HOST)
    monkeypatch.setattr(command, "find_xids", list)

    def start(reader, *arguments, launcher=FakeLauncher):
        monkeypatch.setattr(command, "NvmlReader", lambda: reader)
        monkeypatch.setattr(command, "ServerLauncher", launcher)
        return CliRunner().invoke(app, ["doctor", *arguments])

    return start


def test_doctor_exits_with_0_on_a_fit_machine(run):
    done = run(RecordedReader.of("h200"))

    assert done.exit_code == 0, done.output
    assert "up to 8 ranks over NV18" in done.stdout
    assert f"torch    {RUNTIME.torch}, CUDA {RUNTIME.cuda}" in done.stdout


def test_doctor_exits_with_1_on_a_machine_with_a_spoiler(run):
    done = run(RecordedReader.of("t4-pair"))

    assert done.exit_code == 1
    assert "2.7 GiB are in use" in done.stdout


def test_json_has_the_same_content(run):
    found = json.loads(run(RecordedReader.of("t4-pair"), "--json").stdout)

    assert [gpu["name"] for gpu in found["machine"]["gpus"]] == ["Tesla T4"] * 2
    assert len(found["spoilers"]) == 2
    assert found["runtime"]["torch"] == RUNTIME.torch


class BrokenLauncher(FakeLauncher):
    def runtime(self, case=None):
        raise LaunchError("the forkserver did not start: No module named 'torch'")


def test_without_torch_doctor_reports_that_and_shows_the_machine(run):
    done = run(RecordedReader(make_gpu_machine("Tesla T4")), launcher=BrokenLauncher)

    assert done.exit_code == 1
    assert "No module named 'torch'" in done.stdout
    assert "Tesla T4" in done.stdout


class CpuLauncher(FakeLauncher):
    def runtime(self, case=None):
        return RUNTIME.__class__(
            python="3.11.2", torch="2.13.0+cpu", cuda=None, cudnn=None, nccl=None, blas="mkl"
        )


def test_a_torch_without_cuda_is_a_spoiler_only_on_a_machine_with_gpus(run):
    with_gpu = run(RecordedReader(make_gpu_machine("Tesla T4")), launcher=CpuLauncher)
    without = run(RecordedReader(make_gpu_machine()), launcher=CpuLauncher)

    assert with_gpu.exit_code == 1
    assert "install a CUDA build" in with_gpu.stdout
    assert without.exit_code == 0


class NewerLauncher(FakeLauncher):
    def runtime(self, case=None):
        return msgspec.structs.replace(RUNTIME, cuda="13.0")


def test_a_torch_too_new_for_the_driver_is_a_spoiler_with_its_remedy(run):
    done = run(RecordedReader.of("h200"), launcher=NewerLauncher)  # its driver runs CUDA 12.4

    assert done.exit_code == 1
    assert "gpu: nothing: torch is built for CUDA 13.0" in done.stdout
    spoiler = done.stdout.partition("would spoil a measurement")[2]
    assert "torch is built for CUDA 13.0, and NVML reports a driver for CUDA 12.4" in spoiler
    assert "→ install a torch built for CUDA 12" in spoiler
    assert "pip install torch==2.13.0+cu126" in spoiler


def test_a_variable_left_over_from_debugging_is_a_spoiler(run, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")

    done = run(RecordedReader.of("h200"))

    assert done.exit_code == 1
    assert "→ unset CUDA_LAUNCH_BLOCKING" in done.stdout


def test_an_xid_in_the_kernels_log_is_a_spoiler(run, monkeypatch):
    monkeypatch.setattr(command, "find_xids", lambda: ["Xid 79 of 0000:3b:00"])

    done = run(RecordedReader.of("h200"))

    assert done.exit_code == 1
    assert "the kernel's log has Xid 79 of 0000:3b:00" in done.stdout
