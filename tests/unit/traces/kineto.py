"""Builders of traces in Kineto's format. Times in µs."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]
MAIN, WORKER = 100, 200


def event(category: str, name: str, start: float, length: float, tid: int, **args: Any) -> Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": tid,
        "ts": start,
        "dur": length,
        "args": args,
    }


def kernel(name: str, start: float, length: float, *, stream: int = 7, **args: Any) -> Event:
    return event("kernel", name, start, length, stream, stream=stream, **args)


def all_reduce(start: float, length: float, *, stream: int = 20, **args: Any) -> Event:
    return kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, length, stream=stream, **args)


def copy(start: float, length: float, *, stream: int = 7) -> Event:
    name = "Memcpy HtoD (Pinned -> Device)"
    return event("gpu_memcpy", name, start, length, stream, stream=stream)


def fill(start: float, length: float, **args: Any) -> Event:
    return event("gpu_memset", "Memset (Device)", start, length, 7, stream=7, **args)


def wait(start: float, *, name: str = "cudaStreamSynchronize", tid: int = MAIN) -> Event:
    return event("cuda_runtime", name, start, 1, tid)


def launch(start: float, correlation: int, *, tid: int = MAIN) -> Event:
    return event("cuda_runtime", "cudaLaunchKernel", start, 1, tid, correlation=correlation)


def step(number: int, start: float, length: float) -> Event:
    return event("user_annotation", f"ProfilerStep#{number}", start, length, MAIN)


def operator(name: str, start: float, length: float, *, tid: int = MAIN) -> Event:
    return event("cpu_op", name, start, length, tid)


def gloo(start: float, length: float, elements: int = 340) -> Event:
    dims = {"Input Dims": [[elements]], "Input type": ["float"]}
    return event("user_annotation", "gloo:all_reduce", start, length, WORKER, **dims)


def file(*events: Event, rank: int | None = 0, **header: Any) -> str:
    """Return the text of a trace of `rank`; with None the trace has no rank."""
    if rank is not None:
        header["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    return json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)})
