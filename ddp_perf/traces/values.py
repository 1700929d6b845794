"""The values of an analysis of traces: times in seconds, shares from 0 to 1."""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA_VERSION = 1

CallKind = Literal["kernel", "collective", "copy", "fill", "synchronisation"]


class Message(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The data that one collective sends. None: the trace does not have it."""

    kind: str  # "all_reduce", "broadcast", …; a kernel's name if the trace has no kind
    dtype: str | None = None
    bytes: int | None = None  # of the larger of input and output, on this rank
    group: str | None = None  # its description, or its name
    group_ranks: str | None = None  # "[0, 1]", as in the trace
    group_size: int | None = None


class TimeSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds of one rank by kind of work."""

    window_s: float  # computation + exposed communication + exposed memory + idle
    computation_s: float
    communication_s: float  # all of it, hidden or not
    exposed_communication_s: float
    memory_s: float
    exposed_memory_s: float
    idle_s: float
    overlap: (
        float | None
    )  # overlap ratio: share of the communication that computation hides; None: no communication


class HtaSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of HolisticTraceAnalysis 0.5 for the same trace, from the events it selects."""

    computation_s: float
    idle_s: float
    other_s: float  # busy, and not computing
    overlap: float | None


class StepSplit(msgspec.Struct, frozen=True, kw_only=True):
    """One annotated step of one rank. All work that it launched belongs to it."""

    number: int
    step_s: float  # of the host's annotation
    computation_s: float
    communication_s: float
    exposed_communication_s: float


class RankSkew(msgspec.Struct, frozen=True, kw_only=True):
    """The delay of one rank in the collectives that it shares with others."""

    rank: int
    collectives: int
    last: int  # number of them in which it was the last rank
    behind_s: float  # median delay after the first rank


class RankComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of the ranks over the collectives that could be matched between them."""

    matched: int
    unmatched: int  # calls of one rank without a known counterpart
    one_clock: bool  # False: the files' clocks differ, so lengths are compared
    hosts: int = 1  # of the files; several have several clocks
    median_skew_s: float | None  # last start − first start; None: nothing matched
    largest_skew_s: float | None
    slowest: int | None  # the rank that was the last in most of them; None: no such rank
    ranks: tuple[RankSkew, ...]


class KernelTotal(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one kernel or operator, over all ranks."""

    name: str
    calls: int
    total_s: float  # of an operator: without the operators that it calls


class CollectiveTotal(msgspec.Struct, frozen=True, kw_only=True):
    """All collectives of one kind, type, size and group, over all ranks."""

    message: Message
    calls: int
    total_s: float
    exposed_s: float  # time in which that rank did not compute


class KernelCount(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The number of calls of one kernel, copy, fill or synchronising call, in each step."""

    kind: CallKind
    name: str
    calls: tuple[int, ...]  # one number without annotated steps: of the whole trace


class KernelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one rank's GPU in each annotated step, and the calls in which the host waits.

    Work belongs to the step that launched it; a waiting call to the step in which it begins.
    """

    steps: tuple[int, ...]  # numbers; empty: none is annotated
    counts: tuple[KernelCount, ...]  # sorted


class RankTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The analysis of one rank's file."""

    file: str
    rank: int
    world_size: int | None  # None: not in the trace
    backend: str | None
    host: str | None
    device: str | None  # the GPU's name, or "CPU" if the host computes
    split: TimeSplit
    hta: HtaSplit | None  # None without a GPU
    steps: tuple[StepSplit, ...]
    dropped: int  # entries that are not usable
    counts: KernelCounts | None = None  # None without a GPU


class TraceAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """The analysis of all files of one command, defined in `split`, `steps` and `skew`."""

    schema_version: int = SCHEMA_VERSION
    ranks: tuple[RankTrace, ...]  # by rank
    kernels: tuple[KernelTotal, ...]
    collectives: tuple[CollectiveTotal, ...]
    comparison: RankComparison | None  # None: one rank
