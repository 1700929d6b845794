"""What ci/bench prints of a machine before it measures."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.gpu import GpuMachine
from ddp_perf.report.commands.doctor import outlook
from ddp_perf.system.host.host import HostState
from tests.recordings import RecordedReader

HOST = HostState(name="host", cpu="Some Processor", cores=tuple(range(256)), busy=2.6)
EXACT = "structure, losses and work exactly"
NONE = GpuMachine(gpus=())


def laptop(**fields):
    return msgspec.structs.replace(HOST, cores=(0, 1), **fields)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        (
            laptop(busy=0.74),
            f"2 cores, other processes take 37%: {EXACT}; times only on a quieter machine",
        ),
        (
            laptop(busy=0.02),
            f"2 cores, other processes take 1%: {EXACT}; times with a tolerance of 10 % or more",
        ),
        (laptop(busy=None), f"2 cores: {EXACT}; times with a tolerance of 10 % or more"),
        (
            laptop(busy=None, governor="powersave"),
            f"2 cores: {EXACT}; times are disturbed: ddp-perf doctor states by what, and what"
            " helps",
        ),
    ],
)
def test_a_host_decides_times_only_if_nothing_else_runs(host, text):
    assert outlook("cpu", NONE, (), host) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("h200", f"8 GPUs (NVIDIA H200), 256 cores, other processes take 1%: {EXACT}; times, too"),
        ("t4-pair", "times are disturbed: ddp-perf doctor states by what, and what helps"),
    ],
)
def test_gpus_are_named_and_checked(name, text):
    reader = RecordedReader.of(name)
    machine = reader.machine()

    assert outlook("gpu", machine, reader.health(machine.gpus), HOST).endswith(text)
