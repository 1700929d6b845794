"""Every Hypothesis strategy of the test suite."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ddp_perf.core.decomposition import RankPhases, RankProbe
from ddp_perf.core.gpu import Gpu, GpuLink, GpuMachine
from ddp_perf.system.gpu.nvml_activity import GpuCounters
from ddp_perf.system.host.processes import CoreTimes, FamilyCpu
from ddp_perf.telemetry.sample import Sample

FACTORS = st.floats(1e-6, 1e6)
SLOWER = st.floats(1.001, 3.0)


@st.composite
def comparisons(draw: st.DrawFn, *, launch_values: int = 3) -> dict[str, Any]:
    """Arguments of `judge_launches`: a machine of any noise, a ratio near or far from one.

    The noise is drawn by a seeded generator, so that a failing example shrinks to a simple
    machine and not to a list of thousand floats.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sessions, launches = draw(st.integers(1, 10)), draw(st.integers(1, 6))
    session, launch, value = (draw(st.floats(0.0, 0.05)) for _ in range(3))
    slow_share = draw(st.sampled_from([0.0, 0.0, 0.3]))
    levels = random.normal(0, session, (sessions + 1, 1, 1)) + random.normal(
        0, launch, (sessions + 1, launches, 1)
    )
    levels = levels + math.log(1.4) * (random.random((sessions + 1, launches, 1)) < slow_share)
    values = np.exp(levels + random.normal(0, value, (sessions + 1, launches, launch_values)))
    ratio = draw(st.one_of(st.just(1.0), st.floats(0.7, 1.5)))
    arguments: dict[str, Any] = {
        "current": (values[-1] * ratio).tolist(),
        "baseline": values[:-1].tolist(),
        "tolerance": draw(st.floats(0.005, 0.2)),
        "alpha": draw(st.floats(1e-5, 0.05)),
        "reference": draw(st.one_of(st.none(), st.integers(1, sessions))),
    }
    if draw(st.booleans()):
        control = np.exp(random.normal(0, 0.01, (sessions + 1, launches, 4)))
        arguments |= {"control": control[-1].tolist(), "baseline_control": control[:-1].tolist()}
    return arguments


@st.composite
def gpu_machines(draw: st.DrawFn, *, most: int = 8) -> GpuMachine:
    """One to ``most`` whole GPUs, linked in any way; any reading may be missing."""
    count = draw(st.integers(1, most))
    optional = {
        "memory": st.integers(2**30, 2**38),
        "numa_node": st.integers(0, 7),
        "power_limit_w": st.integers(60, 1000).map(float),
        "power_default_w": st.integers(60, 1000).map(float),
        "sm_clock_mhz": st.integers(300, 2000),
        "sm_clock_default_mhz": st.integers(300, 2000),
        "sm_clock_max_mhz": st.integers(300, 2000),
        "pcie_generation_max": st.integers(1, 6),
        "pcie_width_max": st.sampled_from([1, 8, 16]),
        "persistence": st.booleans(),
        "ecc": st.booleans(),
        "fabric": st.sampled_from(["not started", "in progress", "completed"]),
        "compute_mode": st.sampled_from(["default", "prohibited", "exclusive process"]),
    }
    name = draw(st.sampled_from(["Tesla T4", "NVIDIA A100-PCIE-40GB", "NVIDIA H200"]))
    gpus = [
        Gpu(
            index=index,
            uuid=f"GPU-{index}abc-0000",
            name=name,
            compute_capability=(8, 0),
            cores=tuple(sorted(draw(st.sets(st.integers(0, 300), max_size=4)))),
            **{field: draw(st.none() | values) for field, values in optional.items()},
        )
        for index in range(count)
    ]
    levels = st.sampled_from(["INT", "PIX", "PXB", "PHB", "NODE", "SYS", None])
    switched = draw(st.sampled_from([0, 12, 18]))  # through switches every pair has as many
    links = [
        GpuLink(
            first=first,
            second=second,
            nvlinks=switched or draw(st.sampled_from([0, 0, 1, 2, 4])),
            pcie=draw(levels),
            peer_access=draw(st.sampled_from([True, False, None])),
        )
        for first, second in itertools.combinations(range(count), 2)
    ]
    return GpuMachine(gpus=tuple(gpus), links=tuple(links), driver="570.1", cuda_driver="12.8")


_SECONDS = st.floats(0, 1e6)


def samples() -> st.SearchStrategy[Sample]:
    """Any counters at all, also such as stand still or run backwards between two readings."""
    core = st.builds(CoreTimes, total=_SECONDS, idle=_SECONDS, interrupts=_SECONDS, stolen=_SECONDS)
    return st.builds(
        Sample,
        at_s=_SECONDS,
        cpu_s=_SECONDS,
        system_s=_SECONDS,
        cores=st.dictionaries(st.integers(0, 3), core),
        family_cpu=st.builds(FamilyCpu, on_cores=_SECONDS, total=_SECONDS),
        waits_s=st.dictionaries(st.integers(1, 3), _SECONDS),
        heat_events=st.integers(0, 3),
        clock_ratio=st.floats(0.01, 2),
        gpu=st.none() | st.builds(GpuCounters, heat_s=st.none() | _SECONDS),
    )


@st.composite
def synchronised_probes(draw: st.DrawFn) -> list[RankProbe]:
    """Ranks that work as long as they like, and wait until the last one has come and gone on."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ranks, steps = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    own = random.exponential(0.01, (5, ranks, steps))
    exposed = random.exponential(draw(st.sampled_from([0.0, 0.01])), steps)
    waits = own.sum(axis=0).max(axis=0) + exposed - own.sum(axis=0)
    names = ("data", "forward", "backward", "optimizer", "idle")
    return [
        RankProbe(
            phases=RankPhases(
                **{name: tuple(own[i, rank]) for i, name in enumerate(names)},
                waiting=(0.0,) * steps,
                exposed=tuple(waits[rank]),
            ),
            unsynchronised_backward=tuple(random.exponential(0.01, steps)),
        )
        for rank in range(ranks)
    ]
