"""The merge of all ranks' traces into one file for a viewer (ui.perfetto.dev)."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.system.files import replace_file
from ddp_perf.traces.chrome import MERGED_RANKS, read_json

_PIDS = 10_000_000  # more than the largest process id of Linux
_FLOWS = 2**40  # more than any flow's id; with 2^13 ranks still exact in JavaScript


def merge_traces(files: Mapping[int, Path], target: Path) -> None:
    """Write `target` (.json.gz) from the ranks' files. Raises TraceError and OSError.

    Every rank has its own processes, threads and flows, and its number before each process's name.
    Its times are moved by the difference between its clock's base and the first rank's. Clocks of
    several hosts are not one clock, so each process's name then has its host.
    """
    traces = {rank: read_json(path) for rank, path in files.items()}
    first = next(iter(traces.values()))
    several = len({trace.get("host_name") for trace in traces.values()}) > 1
    events: list[dict[str, Any]] = []
    for rank, trace in traces.items():
        shift_us = (_base_ns(trace) - _base_ns(first)) / 1e3
        name = f"rank {rank}" + (f" on {trace.get('host_name')}, by its clock" if several else "")
        events += _of_rank(rank, name, trace["traceEvents"], shift_us)
    merged = {**first, MERGED_RANKS: list(traces), "traceEvents": events}
    merged.pop("distributedInfo", None)  # one rank's
    replace_file(target, gzip.compress(msgspec.json.encode(merged)))


def _base_ns(trace: Mapping[str, Any]) -> int:
    return int(trace.get("baseTimeNanoseconds", 0))


def _of_rank(
    rank: int, name: str, events: list[dict[str, Any]], shift_us: float
) -> Iterator[dict[str, Any]]:
    for event in events:
        moved = {**event, "pid": _pid(rank, event.get("pid"))}
        if "ts" in event:
            moved["ts"] = event["ts"] + shift_us
        if event.get("ph") in ("s", "t", "f") and isinstance(event.get("id"), int):
            moved["id"] = rank * _FLOWS + event["id"]
        if event.get("name") == "process_name":
            moved["args"] = {"name": f"{name}: {event['args']['name']}"}
        elif event.get("name") == "process_sort_index":
            moved["args"] = {"sort_index": rank}
        yield moved


def _pid(rank: int, pid: object) -> int | str:
    return (rank + 1) * _PIDS + pid if isinstance(pid, int) else f"rank {rank}: {pid}"
