"""A missed target states what the machine shows of its GPUs, and nothing else does."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.target import Target
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.targets import with_faults
from tests.builders import (
    make_case,
    make_finding,
    make_gpu_machine,
    make_measurement,
    make_placement,
)

CASE = make_case()
TARGET = Target(figure="throughput", bound=1e9, unit="", file="x.yaml")
FULL = {"pcie_width_max": 16, "pcie_generation_max": 4, "sm_clock_max_mhz": 1400}


def reason(*loads, outcome=Outcome.MISSES_TARGET, metric="target:throughput", gpus=2, **settings):
    """Return the reason of a finding on two ranks; one load for each launch, of every rank."""
    machine = make_gpu_machine(*["NVIDIA L4"] * gpus, **{**FULL, **settings})
    measurement = make_measurement(CASE, [0.01] * max(len(loads), 1))
    launches = []
    for place, launch in enumerate(measurement.launches):
        ranks = tuple(
            msgspec.structs.replace(
                rank,
                placement=make_placement(device_id=machine.gpus[rank.placement.rank].uuid),
                load=loads[place] if loads else None,
            )
            for rank in launch.ranks
        )
        launches.append(msgspec.structs.replace(launch, ranks=ranks))
    measurement = msgspec.structs.replace(measurement, launches=tuple(launches))
    finding = make_finding(CASE, outcome, metric=metric, target=TARGET)
    return with_faults(finding, measurement, machine).reason


def test_gpus_with_one_fault_are_named_together():
    assert reason(power_limit_w=40.0, power_default_w=72.0) == (
        "because; GPU 0, 1: its power limit is 40 W (default: 72 W)"
    )


def test_gpus_that_no_rank_of_the_case_uses_are_left_out():
    assert "GPU 0, 1: its power" in reason(gpus=4, power_limit_w=40.0, power_default_w=72.0)


def test_readings_under_load_are_those_of_all_launches():
    """The typical clock, every reason, and the best link: an idle GPU lowers it."""
    slow = GpuLoad(sm_clock_mhz=700, throttle=("power cap",), pcie_generation=1, pcie_width=8)
    warm = GpuLoad(sm_clock_mhz=900, throttle=("heat (software)",))
    fast = GpuLoad(sm_clock_mhz=1400, throttle=(), pcie_generation=4, pcie_width=8)

    assert reason(slow, warm, fast) == (
        "because; GPU 0, 1: its clocks are reduced by power cap, heat (software) to 900 of"
        " 1400 MHz; GPU 0, 1: PCIe runs on 8 of 16 lanes"
    )


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"outcome": Outcome.MEETS_TARGET}, id="it is met"),
        pytest.param({"outcome": Outcome.UNDECIDED}, id="it is undecided"),
        pytest.param({"metric": "target:peak_memory"}, id="memory does not depend on it"),
        pytest.param({"power_limit_w": 72.0}, id="nothing is slow"),
    ],
)
def test_nothing_is_added_to_another_verdict(changes):
    settings = {"power_limit_w": 40.0, "power_default_w": 72.0, **changes}

    assert reason(**settings) == "because"


def test_the_cpu_tier_has_no_gpus():
    measurement = make_measurement(CASE, [0.01])
    finding = make_finding(CASE, Outcome.MISSES_TARGET, metric="target:throughput")

    assert with_faults(finding, measurement, None) is finding
