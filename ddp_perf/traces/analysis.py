"""Traces of a run's ranks: where each one's time went, and how the ranks differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ddp_perf.errors import TraceError
from ddp_perf.traces.chrome import ChromeTrace, read_chrome_trace
from ddp_perf.traces.counts import kernel_counts
from ddp_perf.traces.skew import compare_ranks
from ddp_perf.traces.split import hta_split_of, split_of
from ddp_perf.traces.steps import steps_of
from ddp_perf.traces.timeline import Timeline, timeline_of
from ddp_perf.traces.top import top_collectives, top_kernels
from ddp_perf.traces.values import (
    RankTrace,
    TraceAnalysis,
)

_REMEDY = "profile with torch.profiler's activities CPU and CUDA"
_RANK_IN_NAME = re.compile(r"rank[-_.=]?(\d+)", re.IGNORECASE)


def analyse_traces(paths: Sequence[Path]) -> TraceAnalysis:
    """Read and analyse the files, one for each rank.

    Raises TraceError if a file is not a trace, has no work, or belongs to the rank of another file.
    """
    traces: dict[int, RankTrace] = {}
    timelines: dict[int, Timeline] = {}
    for path in paths:
        trace = read_chrome_trace(path)
        rank = _rank_of(path, trace, default=len(traces))
        if rank in traces:
            raise TraceError(
                f"{path}: is of rank {rank}, and so is {traces[rank].file}; give one file a rank"
            )
        timelines[rank] = timeline_of(trace)
        traces[rank] = _rank_trace(path, rank, trace, timelines[rank])
    ranks = sorted(traces)
    timelines = {rank: timelines[rank] for rank in ranks}
    hosts = {trace.host for trace in traces.values() if trace.host is not None}
    return TraceAnalysis(
        ranks=tuple(traces[rank] for rank in ranks),
        kernels=top_kernels(list(timelines.values())),
        collectives=top_collectives(list(timelines.values())),
        comparison=compare_ranks(timelines, hosts=hosts) if len(ranks) > 1 else None,
    )


def _rank_of(path: Path, trace: ChromeTrace, *, default: int) -> int:
    """Return the rank from the trace, else from the file's name, else `default`."""
    if trace.distributed.rank is not None:
        return trace.distributed.rank
    found = _RANK_IN_NAME.search(path.name)
    return int(found[1]) if found else default


def _rank_trace(path: Path, rank: int, trace: ChromeTrace, timeline: Timeline) -> RankTrace:
    if timeline.lacks_device:
        raise TraceError(f"{path}: has launches on a GPU, but no kernel; {_REMEDY}")
    if not any(timeline.kinds):
        raise TraceError(f"{path}: has no kernel, and no operator of a CPU; {_REMEDY}")
    return RankTrace(
        file=str(path),
        rank=rank,
        world_size=trace.distributed.world_size,
        backend=trace.distributed.backend,
        host=trace.host,
        device=_device_name(trace, timeline),
        split=split_of(timeline),
        hta=hta_split_of(timeline),
        steps=steps_of(timeline),
        dropped=timeline.dropped,
        counts=kernel_counts(timeline),
    )


def _device_name(trace: ChromeTrace, timeline: Timeline) -> str | None:
    if not timeline.on_device:
        return "CPU"
    names = {device.name for device in trace.devices if device.name}
    return " and ".join(sorted(names)) or None
