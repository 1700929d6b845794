"""The cost of changed work on an accelerator: modelled, and not measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import get_args

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.subject import CollectiveKind
from ddp_perf.core.work import HOST_READS, CollectiveCount, OperationCount, Site, StepWork
from ddp_perf.render.units import short_number
from ddp_perf.stats.hardware import memory_bandwidth, peak_flops
from ddp_perf.stats.link import Link, ring_s
from ddp_perf.stats.plausibility import link_peak
from ddp_perf.work.values import CountedCase, WorkChange, is_host_read

# The cost of changed work on an accelerator: modelled, and not measured.
#
# An operation takes its bytes ÷ the bandwidth of the memory, or its FLOPs ÷ the peak, whichever is
# longer, and a launch. A collective takes the time of the α-β model. docs/work.md has how far such
# sums are from published steps.


# Of a short kernel on a V100: 3.8 µs where the host launches ahead, 9.6 µs where it waits for each
# (NVIDIA, "Getting Started with CUDA Graphs", 2019). A host read is such a kernel at least: the
# host also waits for whatever was launched before it.
LAUNCH_S = 3.8e-6
HOST_READ_S = 9.6e-6
# NCCL, src/graph/tuning.cc: a ring with the protocol Simple.
_BASE_S = 8.4e-6
_NVLINK_HOP_S = 3.4e-6
_PCIE_HOP_S = 5.7e-6
_PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


class WorkCost(msgspec.Struct, frozen=True, kw_only=True):
    """The modelled cost of the changes of a step on an accelerator."""

    accelerator: str  # the name of its baseline file
    change_s: float  # negative: the step would be shorter
    step_s: float  # of the step without the changes, modelled as well
    at_least: bool = False  # a host read waits for what was launched before it, too
    left_out: tuple[str, ...] = ()  # changes that the model has no figure for


class Modelled(msgspec.Struct, frozen=True, kw_only=True):
    """A modelled time, with the names of what the model has no figure for."""

    seconds: float
    left_out: tuple[str, ...] = ()


class CostModel:
    """The costs of a case's operations and collectives on one accelerator."""

    def __init__(self, accelerator: str, bandwidth: float, case: Case) -> None:
        self._bandwidth = bandwidth
        self._accelerator = accelerator
        self._case = case
        self._link = _link_of(accelerator)

    def step(self, work: StepWork) -> Modelled:
        """Return the time of a step without overlap: the sum over all of its work."""
        return _sum(
            [
                *(self.operation(one, work.sites[one.site]) for one in work.operations),
                *(self.collective(one) for one in work.collectives),
            ]
        )

    def operation(self, counted: OperationCount, site: Site) -> Modelled:
        """Return the time of operations. What moves and computes nothing launches no kernel."""
        moved, flops = counted.read + counted.written, counted.flops
        if is_host_read(counted, site):
            return Modelled(seconds=counted.count * HOST_READ_S)
        if counted.name in HOST_READS or not (moved or flops):  # no kernel runs
            return Modelled(seconds=0.0)
        peak = self._peak(counted.dtype) if flops else math.inf
        if peak is None:
            return Modelled(seconds=0.0, left_out=(f"{counted.name} in {counted.dtype}",))
        longer_s = max(moved / self._bandwidth, flops / peak)
        return Modelled(seconds=counted.count * LAUNCH_S + longer_s)

    def collective(self, counted: CollectiveCount) -> Modelled:
        return self._exchange(counted.kind, 1, counted.bytes, counted.group)

    def change(self, change: WorkChange, before: StepWork, after: StepWork) -> Modelled:
        """Return the cost of one change between two steps.

        It is 0 for what takes no time itself: memory, calls, nodes, and work that only moved.
        """
        if change.moved_from is not None or not change.name:
            return Modelled(seconds=0.0)
        if change.kind == "collective":
            more = change.after - change.before
            return self._exchange(change.name, more, change.bytes, change.group)
        then, now = (
            _sum(
                self.operation(one, work.sites[one.site])
                for one in work.operations
                if _is_of(one, change)
            )
            for work in (before, after)
        )
        both = _sum([then, now])
        return Modelled(seconds=now.seconds - then.seconds, left_out=both.left_out)

    def _peak(self, dtype: str) -> float | None:
        precision = _PRECISIONS.get(dtype, "none")
        if precision == "fp32" and self._case.precision == "tf32":
            precision = "tf32"
        return peak_flops(self._accelerator, precision)

    def _exchange(self, kind: str, count: int, payload: int, group: int | None) -> Modelled:
        """Return the time of collectives, one after the other, on the links of one node."""
        ranks = group or self._case.world_size
        if ranks == 1:
            return Modelled(seconds=0.0)
        known = _kind(kind)
        if known is None or self._link is None or self._case.nodes > 1:
            where = " between nodes" if self._case.nodes > 1 else ""
            return Modelled(seconds=0.0, left_out=(f"{kind}{where}",))
        message = ring_s(known, 0.0, ranks, self._link)  # its latency alone
        moved = ring_s(known, payload, ranks, self._link) - message
        return Modelled(seconds=count * (_BASE_S + message) + moved)


def work_cost(counted: CountedCase, accelerator: str) -> WorkCost | None:
    """Return what the changes of a case would cost on an accelerator.

    None if nothing changed, if the accelerator's peaks are not known, or if the case is one of the
    CPU tier: nothing here models a processor.
    """
    model = model_of(counted, accelerator)
    if model is None or counted.work is None or counted.stored is None:
        return None
    changes = counted.verdict.changes if counted.verdict else ()
    costs = [model.change(one, counted.stored, counted.work) for one in changes if one.name]
    if not costs:
        return None
    change = _sum(costs)
    return WorkCost(
        accelerator=accelerator,
        change_s=change.seconds,
        step_s=model.step(counted.stored).seconds,
        at_least=any(one.kind == "host_read" and one.after > one.before for one in changes),
        left_out=change.left_out,
    )


def model_of(counted: CountedCase, accelerator: str) -> CostModel | None:
    """Return the model of a case on an accelerator, or None if there is none."""
    bandwidth = memory_bandwidth(accelerator)
    if counted.case.tier == "cpu" or bandwidth is None:
        return None
    return CostModel(accelerator, bandwidth, counted.case)


def cost_text(cost: WorkCost) -> str:
    """Write a cost: ``modelled on A100-SXM4-80GB: about +0.3 ms a step (61 → 61.3)``."""
    bound, before = "at least" if cost.at_least else "about", 1e3 * cost.step_s
    without = f", without {', '.join(cost.left_out)}" if cost.left_out else ""
    return (
        f"modelled on {cost.accelerator.upper()}: {bound} {signed_ms(cost.change_s)} ms a step"
        f" ({short_number(before)} → {short_number(before + 1e3 * cost.change_s)}){without}"
    )


def signed_ms(seconds: float) -> str:
    """Write a modelled change in ms with two digits, to a nanosecond at most: ``+0.30``."""
    ms = 1e3 * seconds
    if abs(ms) >= 100:
        return f"{ms:+,.0f}"
    digits = 6 if abs(ms) < 1e-6 else min(6, 1 - math.floor(math.log10(abs(ms))))
    return f"{ms:+.{digits}f}"


def _is_of(counted: OperationCount, change: WorkChange) -> bool:
    same = (counted.phase, counted.name) == (change.phase, change.name)
    return same and counted.dtype in change.dtypes


def _sum(parts: Iterable[Modelled]) -> Modelled:
    found = list(parts)
    names = (name for part in found for name in part.left_out)
    return Modelled(
        seconds=sum(part.seconds for part in found), left_out=tuple(dict.fromkeys(names))
    )


def _link_of(accelerator: str) -> Link | None:
    """Return the link within a node: NVLink where all GPUs of a node have it, else PCIe."""
    name = accelerator.removesuffix("-nvlink")
    nvlink = link_peak(name, "NV")
    if nvlink is not None:
        return Link(latency_s=_NVLINK_HOP_S, bytes_per_s=nvlink)
    pcie = link_peak(name, "SYS")
    return None if pcie is None else Link(latency_s=_PCIE_HOP_S, bytes_per_s=pcie)


def _kind(kind: str) -> CollectiveKind | None:
    return next((known for known in get_args(CollectiveKind) if known == kind), None)


# The accelerators that changed work is modelled on.


DEFAULT = ("a100-sxm4-80gb", "h100-80gb-hbm3")


def accelerators_of(
    cases: Iterable[Case], machine: str, store: BaselineStore
) -> dict[str, tuple[str, ...]]:
    """Return the accelerators for each suite, by its name.

    The one of this machine, if its peaks are known; else those that have figures of the suite,
    measured or published; else DEFAULT. ``machine`` is the name of this machine's baseline file.
    """
    by_suite: dict[str, list[Case]] = {}
    for case in cases:
        by_suite.setdefault(case.suite, []).append(case)
    if memory_bandwidth(machine) is not None:
        return dict.fromkeys(by_suite, (machine,))
    known = [key for key in store.accelerators() if memory_bandwidth(key) is not None]
    baselines = {key: store.load(key) for key in known}
    return {
        suite: tuple(key for key in known if _has_figures(baselines[key], members)) or DEFAULT
        for suite, members in by_suite.items()
    }


def _has_figures(baseline: Baseline, cases: Iterable[Case]) -> bool:
    workloads = {table.work["workload"] for table in baseline.published if "workload" in table.work}
    return any(case.id in baseline.cases or case.workload in workloads for case in cases)
