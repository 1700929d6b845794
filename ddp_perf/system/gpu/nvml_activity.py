"""The activity of a GPU through NVML: counters of its traffic, and samples that the driver keeps.

The driver samples at a fixed rate, whether anyone reads or not, and keeps the samples for some
seconds. So the mean over a period is read after it, at once: no thread runs beside the steps.
"""

from __future__ import annotations

import statistics
from typing import Any

import msgspec
import pynvml

from ddp_perf.core.launch import GpuTraffic, GpuUse
from ddp_perf.system.gpu.nvml import (
    card_of,
    ecc_errors,
    energy_j,
    heat_s,
    is_shared,
    memory_used,
    of_gpu,
    optional,
)

# Values of nvml.h, which older versions of pynvml lack.
_NVLINK_SENT, _NVLINK_RECEIVED = 138, 139  # KiB of data
_PCIE_SENT, _PCIE_RECEIVED = 197, 198  # bytes
_ALL_LINKS = 2**32 - 1
_BUSY, _MEMORY_BUSY, _SM_CLOCK = 1, 2, 5  # kinds of samples
_UNSIGNED_LONG_LONG = 3  # a type of values
_KIB = 1024


class GpuCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The driver's counters of one GPU or MIG slice since it was loaded. None: unknown."""

    heat_s: float | None = None  # time in which heat reduced its clocks
    energy_j: float | None = None
    ecc_uncorrected: int | None = None
    traffic: GpuTraffic = GpuTraffic()


def read_counters(uuid: str) -> GpuCounters:
    """Return the counters of one GPU or MIG slice. These are few calls: they fit between steps."""
    return of_gpu(uuid, _counters, GpuCounters())


def _counters(handle: Any) -> GpuCounters:
    """Return the counters. A MIG slice, and a card with slices, have neither energy nor traffic."""
    traffic = GpuTraffic()
    if not is_shared(handle):
        traffic = GpuTraffic(
            pcie_sent=_counter(handle, _PCIE_SENT),
            pcie_received=_counter(handle, _PCIE_RECEIVED),
            nvlink_sent=_counter(handle, _NVLINK_SENT, _ALL_LINKS, unit=_KIB),
            nvlink_received=_counter(handle, _NVLINK_RECEIVED, _ALL_LINKS, unit=_KIB),
        )
    return GpuCounters(
        heat_s=heat_s(card_of(handle)),
        energy_j=energy_j(handle),
        ecc_uncorrected=ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        traffic=traffic,
    )


def read_use(uuid: str, since_us: int, until_us: int) -> GpuUse:
    """Return the use of one GPU between two moments, without its traffic.

    The moments are in µs since 1970. A sample belongs to the period if it was taken within it, so
    the first one also covers some of the time before. A MIG slice has only its memory, and a card
    with slices has nothing.
    """

    def use(handle: Any) -> GpuUse:
        if is_shared(handle):
            return GpuUse(memory_used=memory_used(handle))
        busy, memory_busy, clock = (
            _mean_sample(handle, kind, since_us, until_us)
            for kind in (_BUSY, _MEMORY_BUSY, _SM_CLOCK)
        )
        return GpuUse(
            busy=_share_of_percent(busy),
            memory_busy=_share_of_percent(memory_busy),
            sm_clock_mhz=clock,
            memory_used=memory_used(handle),
        )

    return of_gpu(uuid, use, GpuUse())


def _counter(handle: Any, field: int, scope: int = 0, *, unit: int = 1) -> int | None:
    """Return a counter in bytes, or None if there is none.

    A counter of 32 bits is none: at 16 GB/s it begins again four times in a second.
    """
    values = optional("nvmlDeviceGetFieldValues", handle, [(field, scope)])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    if values[0].valueType != _UNSIGNED_LONG_LONG:
        return None
    return int(values[0].value.ullVal) * unit


def _mean_sample(handle: Any, kind: int, since_us: int, until_us: int) -> float | None:
    """Return the mean of the samples of the period, or None if there is none."""
    found = optional("nvmlDeviceGetSamples", handle, kind, since_us)
    if found is None:
        return None
    values = [
        sample.sampleValue.uiVal for sample in found[1] if since_us < sample.timeStamp <= until_us
    ]
    return statistics.fmean(values) if values else None


def _share_of_percent(percent: float | None) -> float | None:
    return None if percent is None else min(percent / 100, 1.0)
