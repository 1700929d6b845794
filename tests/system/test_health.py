"""The health suites on played machines: one that is what its name says, and three that are not.

Each machine plays the figures and the readings of its GPUs; the items, the targets and the verdicts
are the real ones.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.launch import RankConditions
from ddp_perf.stats.link import bus_factor
from tests.builders import (
    FakeLauncher,
    make_capacity,
    make_gpu_machine,
    make_launch,
    make_placement,
)
from tests.projects import REPOSITORY, make_bare_project


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What a card does, and what NVML reads of it; by default of a V100-PCIE in a good slot."""

    name: str = "Tesla V100-PCIE-16GB"
    fp16: float = 80e12  # FLOP/s of a step of matrix products
    fp32: float = 12e12
    memory: float = 600e9  # bytes/s
    link: float = 11e9  # bytes/s on the bus
    nvlinks: int = 0
    settings: dict = {}
    load: GpuLoad = GpuLoad(sm_clock_mhz=1380, pcie_generation=3, pcie_width=16)
    conditions: RankConditions = RankConditions()


V100 = Card(
    settings={
        "pcie_width_max": 16,
        "pcie_generation_max": 3,
        "sm_clock_max_mhz": 1380,
        "power_limit_w": 250.0,
        "power_default_w": 250.0,
    }
)
A100 = Card(
    name="NVIDIA A100-SXM4-40GB",
    fp16=200e12,
    fp32=17e12,
    memory=1.1e12,
    link=210e9,
    nvlinks=12,
    settings={"power_limit_w": 400.0, "power_default_w": 400.0, "sm_clock_max_mhz": 1410},
    load=GpuLoad(sm_clock_mhz=1400, pcie_generation=4, pcie_width=16),
)
T4 = Card(
    name="Tesla T4",
    fp16=21e12,
    fp32=4.2e12,
    memory=200e9,
    link=5e9,
    settings={"sm_clock_max_mhz": 1590, "pcie_width_max": 16},
    load=GpuLoad(sm_clock_mhz=900, throttle=("power cap",), pcie_generation=3, pcie_width=16),
)
H200 = Card(
    name="NVIDIA H200",
    fp16=500e12,
    fp32=45e12,
    memory=3.2e12,
    link=350e9,
    nvlinks=18,
    load=GpuLoad(sm_clock_mhz=1700, throttle=("power cap",), pcie_generation=5, pcie_width=16),
)
L4 = Card(name="NVIDIA L4", fp16=50e12, fp32=13e12, memory=200e9, link=8e9, load=GpuLoad())


def step_of(case, card):
    """Return the seconds and the FLOPs of a step of a health suite on this card."""
    if case.collective is not None:
        moved = case.collective.calls * case.collective.payload
        return moved * bus_factor("all_reduce", case.world_size) / card.link, None
    width, layers = case.training.model["hidden_dim"], case.training.model["num_layers"]
    if case.batch_size == 1:  # the memory
        return (24 * layers - 4) * width**2 / card.memory, None
    flops = (3 * layers - 1) * 2 * case.batch_size * width**2
    return flops / getattr(card, case.precision), flops


def launch_on(card, machine, request):
    """Return a launch whose ranks are on the machine's GPUs, and read what the card reads."""
    case = request.case
    step_s, flops = step_of(case, card)
    differing = step_s * (1, 1.004, 0.996)[request.round % 3]
    counted = {} if flops is None else {"flops": flops, "flops_by_format": {case.precision: flops}}
    launch = make_launch(
        case,
        request.round,
        step_s=differing,
        load=card.load,
        conditions=card.conditions,
        **counted,
    )
    ranks = tuple(
        msgspec.structs.replace(
            rank, placement=make_placement(place, device=f"cuda:{place}", device_id=gpu.uuid)
        )
        for place, (rank, gpu) in enumerate(zip(launch.ranks, machine.gpus, strict=False))
    )
    return msgspec.structs.replace(launch, ranks=ranks)


@pytest.fixture
def health(pytester, monkeypatch):
    """``health(card, count)`` runs the command of docs/targets.md on so many of these cards."""
    make_bare_project(pytester, monkeypatch)
    suites = Path("bench_configs", "health")
    shutil.copytree(REPOSITORY / suites, pytester.path / suites)

    def run(card, count):
        machine = make_gpu_machine(*[card.name] * count, nvlinks=card.nvlinks, **card.settings)
        capacity = make_capacity(machine)
        monkeypatch.setattr("ddp_perf.plugin.session.find_capacity", lambda: capacity)
        monkeypatch.setattr(
            "ddp_perf.session.measure.machine.ServerLauncher",
            lambda: FakeLauncher(lambda request: launch_on(card, machine, request)),
        )
        done = pytester.runpytest_inprocess(
            *("-m", "gpu", "-k", f"test_target and (ws1 or ws{count})"),
            *("-o", "ddp_configs=bench_configs/health"),
        )
        return done, " ".join(done.stdout.str().split())

    return run


@pytest.mark.parametrize("card", [V100, A100, T4, H200, L4], ids=lambda card: card.name)
@pytest.mark.parametrize("count", [2, 8])
def test_a_machine_that_is_what_its_name_says_is_green(health, card, count):
    done, _ = health(card, count)

    assert done.ret == 0
    assert done.parseoutcomes()["passed"] == 4  # one GPU twice, all of them twice


def test_one_gpu_is_measured_without_a_link(health):
    done, _ = health(H200, 1)

    assert (done.ret, done.parseoutcomes()["passed"]) == (0, 2)


def test_a_v100_in_a_slot_of_four_lanes_is_red_with_the_lanes(health):
    load = msgspec.structs.replace(V100.load, pcie_width=4)

    done, shown = health(msgspec.structs.replace(V100, link=2.9e9, load=load), 2)

    assert (done.parseoutcomes()["passed"], done.parseoutcomes()["failed"]) == (3, 1)
    assert "MISSES TARGET: bus bandwidth target of all_reduce-ws2-256MiB-link" in shown
    assert (
        "misses the target of at least 3.5 GB/s in bench_configs/health/link.yaml;"
        " GPU 0, 1: PCIe runs on 4 of 16 lanes"
    ) in shown


def test_an_a100_at_half_of_its_power_is_red_with_the_limit(health):
    capped = msgspec.structs.replace(
        A100,
        fp16=120e12,
        fp32=11e12,
        settings={**A100.settings, "power_limit_w": 200.0},
        load=msgspec.structs.replace(A100.load, sm_clock_mhz=900, throttle=("power cap",)),
    )

    done, shown = health(capped, 8)

    assert (done.parseoutcomes()["passed"], done.parseoutcomes()["failed"]) == (2, 2)
    assert "MISSES TARGET: MFU target of mlp-none-fp16-ws1-b8192-compute" in shown
    assert "MISSES TARGET: MFU target of mlp-ddp-fp32-ws8-b8192-every_gpu" in shown
    assert (
        "GPU 0, 1, 2, 3, 4, 5, 6, 7: its power limit is 200 W (default: 400 W);"
        " GPU 0, 1, 2, 3, 4, 5, 6, 7: its clocks are reduced by power cap to 900 of 1410 MHz"
    ) in shown


def test_a_t4_that_throttles_is_red_and_not_excused_by_its_heat(health):
    hot = msgspec.structs.replace(
        T4,
        fp16=8e12,
        fp32=1.6e12,
        load=msgspec.structs.replace(T4.load, sm_clock_mhz=300, throttle=("heat (hardware)",)),
        conditions=RankConditions(gpu_heat=0.9, gpu_slowed=True),
    )

    done, shown = health(hot, 2)

    assert done.parseoutcomes()["failed"] == 2
    assert "MISSES TARGET: MFU target of mlp-none-fp16-ws1-b8192-compute" in shown
    assert (
        "GPU 0: its clocks are reduced by heat (hardware) to 300 of 1590 MHz;"
        " 3 of 3 launches were disturbed, because heat or a weak power supply slowed a GPU down"
    ) in shown


def test_a_gpu_without_a_floor_is_not_green(health):
    done, _ = health(Card(name="NVIDIA GeForce RTX 4090"), 2)

    assert done.ret != 0
    assert "passed" not in done.parseoutcomes()
