"""Clocks of step boundaries without a synchronisation, and what each step cost its rank."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankProbe
from ddp_perf.system.host.processes import parse_wait_s
from ddp_perf.torch_compat import ieee_products

# Clocks of step boundaries, which do not synchronise in the timed loop.


T = TypeVar("T")


class StepClock(Protocol):
    """A clock: call ``mark`` at every step boundary, and ``intervals_s`` once, at the end."""

    def mark(self) -> None:
        """Mark a step boundary."""
        ...

    def intervals_s(self, on_step: Callable[[], None]) -> list[float]:
        """Return the seconds between the marks, and call ``on_step`` at each mark of a GPU."""
        ...

    def is_followed(self) -> bool:
        """Return whether the device still has to reach the last mark."""
        ...

    def leads_s(self) -> list[float]:
        """Return how far the host was ahead of its GPU at each mark but the first, in seconds.

        The GPU was idle at the first one. Call it after ``intervals_s``. The list is empty if there
        is no GPU.
        """
        ...


class HostClock:
    """A clock by ``perf_counter_ns``: on a CPU a step is done when its call returns."""

    def __init__(self) -> None:
        self._marks: list[int] = []

    def mark(self) -> None:
        self._marks.append(time.perf_counter_ns())

    def intervals_s(self, on_step: Callable[[], None]) -> list[float]:
        return [(end - start) / 1e9 for start, end in itertools.pairwise(self._marks)]

    def is_followed(self) -> bool:
        return False

    def leads_s(self) -> list[float]:
        return []


class CudaClock:
    """A clock by CUDA events, one for each boundary, on the stream that the steps run on.

    ``marks`` events are created in advance. CUDA creates an event when it is first recorded, so
    each is recorded once here, and not for the first time in the timed loop.
    """

    def __init__(self, device: torch.device, marks: int) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._unused = [_event() for _ in range(marks)]
        for event in self._unused:
            event.record(self._stream)
        self._marks: list[torch.cuda.Event] = []
        self._host_s: list[float] = []  # of each mark, by the host's clock

    def mark(self) -> None:
        event = self._unused.pop() if self._unused else _event()
        event.record(self._stream)
        self._marks.append(event)
        self._host_s.append(time.perf_counter())

    def intervals_s(self, on_step: Callable[[], None]) -> list[float]:
        for event in self._marks:  # the host is ahead: follow the GPU to the end of its queue
            event.synchronize()
            on_step()
        return [start.elapsed_time(end) / 1e3 for start, end in itertools.pairwise(self._marks)]

    def is_followed(self) -> bool:
        return not self._marks[-1].query()  # type: ignore[no-untyped-call]

    def leads_s(self) -> list[float]:
        return [
            self._marks[0].elapsed_time(event) / 1e3 - (host_s - self._host_s[0])
            for event, host_s in zip(self._marks[1:], self._host_s[1:], strict=True)
        ]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def read_followed(clock: StepClock, read: Callable[[], T]) -> T | None:
    """Return a reading of a GPU that still runs what was queued when the reading is there.

    None: it was idle by then, and shows other clocks than under load.
    """
    reading = read()
    return reading if clock.is_followed() else None


def step_clock(device: torch.device, steps: int) -> StepClock:
    """Return the clock for ``steps`` steps on ``device``."""
    return CudaClock(device, steps + 1) if device.type == "cuda" else HostClock()


# The witness of each step: what it cost its rank in CPU time, and how long the rank waited.


_WAITS = Path("/proc/thread-self/schedstat")


class StepWitness:
    """The CPU time of this process and the waits of the calling thread at each step boundary.

    A mark takes two system calls, about 2 µs: the file stays open, and is parsed at the end.
    """

    def __init__(self, *, waits: bool = True) -> None:
        self._cpu_ns: list[int] = []
        self._waits: list[bytes] = []
        self._file = os.open(_WAITS, os.O_RDONLY) if waits and _WAITS.exists() else None

    def mark(self) -> None:
        """Mark a step boundary."""
        self._cpu_ns.append(time.process_time_ns())
        if self._file is not None:
            self._waits.append(os.pread(self._file, 100, 0))

    def close(self) -> None:
        """Close the file. The marks remain."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def cpu_s(self) -> list[float]:
        """Return for each step the CPU seconds of all threads: waits are not part of them."""
        return [(end - start) / 1e9 for start, end in itertools.pairwise(self._cpu_ns)]

    def waited_s(self) -> list[float]:
        """Return for each step how long the thread was ready to run, but had no core, in seconds.

        The list is empty if the kernel does not count this time, or if it was not to be read.
        """
        waits = [parse_wait_s(text.decode()) for text in self._waits]
        known = [wait_s for wait_s in waits if wait_s is not None]
        if len(known) < len(waits):
            return []
        return [end - start for start, end in itertools.pairwise(known)]


class NoWitness:
    """The stand-in of a rank on a GPU, whose host may set the pace: it reads nothing."""

    def mark(self) -> None:
        """Read nothing at a step boundary."""

    def close(self) -> None:
        """Close nothing."""

    def cpu_s(self) -> list[float]:
        """Return no CPU time."""
        return []

    def waited_s(self) -> list[float]:
        """Return no wait."""
        return []


# The control: a fixed reference operation. It shows whether the machine changed, or the code.
#
# Its sizes are part of every stored baseline. They must never change.


REPEATS = 4  # before the steps, and as many after them
_CPU_SIZE = 512
_CUDA_SIZE = 4096
_WARM_S = 0.2  # an idle GPU has slow clocks, which would affect half of the control


def control_times_s(device: torch.device) -> list[float]:
    """Return the seconds of each of REPEATS square FP32 matrix products.

    At least one uncounted product comes first; on a GPU, as many as warm it. Afterwards no memory
    is in use, and the precision is what the workload chose.
    """
    size = _CUDA_SIZE if device.type == "cuda" else _CPU_SIZE
    one, other = torch.full((2, size, size), 0.5, device=device).unbind()
    product = torch.empty(size, size, device=device)

    def multiply() -> None:
        torch.mm(one, other, out=product)

    with ieee_products(device):
        multiply()
        if device.type == "cuda":
            _warm(multiply, device)
        clock = step_clock(device, REPEATS)
        clock.mark()
        for _ in range(REPEATS):
            multiply()
            clock.mark()
    return clock.intervals_s(lambda: None)


def _warm(multiply: Callable[[], None], device: torch.device) -> None:
    end = time.monotonic() + _WARM_S
    while time.monotonic() < end:
        multiply()
        torch.cuda.synchronize(device)


# The pace of a step: host-bound, or bound by the GPU.


_LEAST_LEAD = 0.1  # of a step. The queue holds 1,024 launches, a tenth of a step of 10,000


def gained_lead_s(step_s: Sequence[float], leads_s: Sequence[float]) -> float:
    """Return by how much the host got ahead of its GPU in the timed loop, in seconds.

    ``leads_s`` are its leads at the end of each step. Host and GPU begin together, and the queue is
    empty then. A slow host has a lead at each boundary as well, if a step ends with long kernels.
    But then the GPU needs that much longer for the first step than for others, so it is no gain.
    """
    if not leads_s:
        return 0.0
    later = leads_s[len(leads_s) // 2 :]
    return statistics.median(later) - max(0.0, step_s[0] - statistics.median(step_s))


def is_host_bound(lead_s: float, step_s: float, *, waits: bool) -> bool | None:
    """Return whether the GPU waited for the host, or None if these figures do not show it.

    ``lead_s`` is what the host gained. A host that is faster than its GPU gains in every step,
    until the queue of launches is full: whole steps, or a part of one that has thousands of
    launches. A slower host gains nothing. ``waits`` states whether the host waits for the GPU in
    each step: then it may gain nothing, however fast it is.
    """
    if lead_s >= _LEAST_LEAD * step_s:
        return False
    return None if waits else True


def waits_for_gpu(case: Case, probe: RankProbe | None) -> bool:
    """Return whether the host waits for the GPU in each step, or may do so.

    The GradScaler of fp16 does: it reads whether any gradient was infinite. FSDP with parameters
    on the host does: its optimizer waits for the gradients. A script that was not probed may.
    """
    offloads = case.training.fsdp is not None and case.training.fsdp.cpu_offload
    if probe is None:
        waits = case.script is not None  # a captured step does not: a graph reads nothing
    else:
        waits = probe.host_reads > 0 or bool(probe.host_waits)
    return case.precision == "fp16" or offloads or waits


# The conditions of the probe that all ranks must decide equally, or some would hang.


NO_STRUCTURE = "a rank has no structure"  # the reason for which no rank has a probe


def all_agree(yes: bool, device: torch.device, *, key: int = 0) -> bool:
    """Return whether ``yes`` is true and ``key`` is equal on all ranks. Collective.

    The key has 62 bits at most.
    """
    votes = torch.tensor([int(yes), key, -key], dtype=torch.int64, device=device)
    dist.all_reduce(votes, dist.ReduceOp.MIN)
    all_yes, least_key, negative_largest_key = votes.tolist()
    return bool(all_yes) and least_key == -negative_largest_key


_SPARE = 0.1  # of the device's memory: fragmentation may make it unusable


def has_memory(wanted: int, device: torch.device) -> bool:
    """Return whether the device has ``wanted`` bytes beside training. A CPU always has them."""
    if device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return wanted + _SPARE * total < free + cached


def allocator_retries(device: torch.device) -> int:
    """Return how often so far the allocator had to free its cache because memory was full."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.memory_stats(device)["num_alloc_retries"])
