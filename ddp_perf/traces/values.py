"""What an analysis of traces finds: times in seconds, shares of one."""

from __future__ import annotations

import msgspec

SCHEMA_VERSION = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Of one collective. None, or empty: the trace does not say."""

    kind: str  # "all_reduce", "broadcast", …; a kernel's name where nothing else is known
    dtype: str | None = None
    bytes: int | None = None  # of the larger of input and output, on this rank
    group: str | None = None  # its description, or its name
    group_ranks: str | None = None  # "[0, 1]", as the trace has it
    group_size: int | None = None


class TimeSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one rank."""

    window_s: float  # computation + exposed communication + exposed memory + idle
    computation_s: float
    communication_s: float  # all of it, hidden or not
    exposed_communication_s: float
    memory_s: float
    exposed_memory_s: float
    idle_s: float
    overlap: float | None  # share of the communication that computation hides; None: none ran


class HtaSplit(msgspec.Struct, frozen=True, kw_only=True):
    """What HolisticTraceAnalysis 0.5 reports of the same trace, from the events that it selects."""

    computation_s: float
    idle_s: float
    other_s: float  # busy, and not computing
    overlap: float | None


class StepSplit(msgspec.Struct, frozen=True, kw_only=True):
    """One annotated step of one rank. What it launched is its own, whenever it ran."""

    number: int
    step_s: float  # by the host's annotation
    computation_s: float
    communication_s: float
    exposed_communication_s: float


class RankSkew(msgspec.Struct, frozen=True, kw_only=True):
    """One rank in the collectives that it shares with others."""

    rank: int
    collectives: int
    last: int  # in how many of them it was the last
    behind_s: float  # how long after the first rank it came, median


class RankComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Over the collectives that could be matched between ranks."""

    matched: int
    unmatched: int  # calls of one rank whose counterpart is not known
    one_clock: bool  # False: the files' clocks differ, and lengths were compared
    median_skew_s: float | None  # last start − first start; None: nothing matched
    largest_skew_s: float | None
    slowest: int | None  # the rank that was last into most of them; None: no rank was
    ranks: tuple[RankSkew, ...]


class KernelTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one name, over all ranks."""

    name: str
    calls: int
    total_s: float  # of an operator: without those that it calls


class CollectiveTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one kind, type, size and group, over all ranks."""

    message: Message
    calls: int
    total_s: float
    exposed_s: float  # while that rank did not compute


class RankTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's file, analysed."""

    file: str
    rank: int
    world_size: int | None  # None: the trace does not say
    backend: str | None
    host: str | None
    device: str | None  # the GPU's name, or "CPU": computation is then the host's
    split: TimeSplit
    hta: HtaSplit | None  # None without a GPU
    steps: tuple[StepSplit, ...]
    dropped: int  # entries that could not be used


class TraceAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """All files of one command. Shares and times are defined in `split`, `steps` and `skew`."""

    schema_version: int = SCHEMA_VERSION
    ranks: tuple[RankTrace, ...]  # by rank
    kernels: tuple[KernelTotal, ...]
    collectives: tuple[CollectiveTotal, ...]
    comparison: RankComparison | None  # None: one rank
