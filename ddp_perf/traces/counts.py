"""Counts of the work of a GPU in each step: kernels, collectives, copies, fills, and host waits.

Unlike times they need no quiet machine: of the same program they are equal in every step.
"""

from __future__ import annotations

import collections

import numpy as np
from numpy.typing import NDArray

from ddp_perf.traces.kinds import Kind
from ddp_perf.traces.timeline import Timeline
from ddp_perf.traces.values import CallKind, KernelCount, KernelCounts

_FILLS = ("Memset", "FillBuffer", "__amd_rocclr_fill")


def kernel_counts(timeline: Timeline) -> KernelCounts | None:
    """Count the calls by kind and name in each annotated step; None without a GPU."""
    if not timeline.on_device:
        return None
    found: collections.Counter[tuple[CallKind, str, int]] = collections.Counter()
    of_work = zip(timeline.names, timeline.kinds, _step_of_work(timeline).tolist(), strict=True)
    for name, kind, step in of_work:
        if kind:
            found[_kind(kind, name), name, step] += 1
    for name, start in timeline.synchronisations:
        found["synchronisation", name, _step_during(timeline, start)] += 1
    steps = range(len(timeline.steps.numbers) or 1)
    names = sorted({(kind, name) for kind, name, step in found if step in steps})
    return KernelCounts(
        steps=timeline.steps.numbers,
        counts=tuple(
            KernelCount(
                kind=kind, name=name, calls=tuple(found[kind, name, step] for step in steps)
            )
            for kind, name in names
        ),
    )


def _step_of_work(timeline: Timeline) -> NDArray[np.intp]:
    """Return the index of the step that launched each event; −1: none of them.

    A trace that has launches lacks those from before its beginning: their work is of an earlier
    step. Without annotated steps the whole trace is step 0.
    """
    if not timeline.steps.numbers:
        return np.zeros(len(timeline.names), dtype=np.intp)
    unknown = np.isnan(timeline.launched)
    return timeline.step() if unknown.all() else np.where(unknown, -1, timeline.step())


def _kind(kind: Kind, name: str) -> CallKind:
    if kind == "memory":
        return "fill" if name.startswith(_FILLS) else "copy"
    return "collective" if kind == "communication" else "kernel"


def _step_during(timeline: Timeline, start: float) -> int:
    """Return the index of the step in which a call of the host begins; −1: in none.

    Without annotated steps the whole trace is step 0.
    """
    steps = timeline.steps.intervals
    if not len(steps.start):
        return 0
    index = int(np.searchsorted(steps.start, start, side="right")) - 1
    return index if index >= 0 and start < steps.end[index] else -1
