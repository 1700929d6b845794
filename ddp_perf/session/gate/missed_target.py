"""The line beside a missed target: what slowed the machine down, as it shows itself."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

import msgspec

from ddp_perf.core.gpu import GpuLoad, GpuMachine, Throttle
from ddp_perf.core.launch import RankResult
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import metric_spec
from ddp_perf.core.verdict import Outcome
from ddp_perf.system.checks import faults_under_load


def with_faults(finding: Finding, measurement: Measurement, machine: GpuMachine | None) -> Finding:
    """Add to a missed target what slowed the GPUs of its ranks down, in one line.

    Memory does not depend on it. ``machine`` has the GPUs; None: the CPU tier.
    """
    is_missed = finding.verdict.outcome is Outcome.MISSES_TARGET
    if machine is None or not is_missed or metric_spec(finding.metric).disturbed_by is None:
        return finding
    loads = _loads(measurement)
    own = tuple(gpu for gpu in machine.gpus if gpu.uuid in loads)
    faults = faults_under_load(msgspec.structs.replace(machine, gpus=own), loads)
    shown = "; ".join(_together(faults))
    if not shown:
        return finding
    reason = f"{finding.verdict.reason}. The machine shows: {shown}"
    verdict = msgspec.structs.replace(finding.verdict, reason=reason)
    return msgspec.structs.replace(finding, verdict=verdict)


def _loads(measurement: Measurement) -> dict[str, GpuLoad]:
    """Return the readings of each GPU under load, over all launches, by its UUID."""
    ranks: dict[str, list[RankResult]] = {}
    for launch in measurement.launches:
        for rank in launch.ranks:
            ranks.setdefault(rank.placement.device_id, []).append(rank)
    return {uuid: _load(each) for uuid, each in ranks.items()}


def _load(ranks: list[RankResult]) -> GpuLoad:
    """Return the typical clock, every reason for a reduced one, and the best link.

    A GPU that idles by the time of a reading lowers its link.
    """
    loads = [rank.load for rank in ranks if rank.load is not None]
    clocks = [clock for rank in ranks if (clock := rank.clock_mhz("sm_clock_mhz")) is not None]
    throttle: dict[Throttle, None] = {}
    for load in loads:
        throttle |= dict.fromkeys(load.throttle or ())
    return GpuLoad(
        sm_clock_mhz=round(statistics.median(clocks)) if clocks else None,
        throttle=tuple(throttle),
        pcie_generation=_most(load.pcie_generation for load in loads),
        pcie_width=_most(load.pcie_width for load in loads),
    )


def _most(readings: Iterable[int | None]) -> int | None:
    return max((one for one in readings if one is not None), default=None)


def _together(faults: Iterable[str]) -> Iterator[str]:
    """Yield each fault once, with all GPUs that have it: ``GPU 0, 1: …``."""
    gpus: dict[str, list[str]] = {}
    for fault in faults:
        where, colon, what = fault.partition(": ")
        is_of_one = colon and where.startswith("GPU ")
        gpus.setdefault(what if is_of_one else fault, []).extend(
            [where.removeprefix("GPU ")] if is_of_one else []
        )
    for what, indices in gpus.items():
        yield f"GPU {', '.join(indices)}: {what}" if indices else what
