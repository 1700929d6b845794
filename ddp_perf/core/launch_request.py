"""What a launch is asked for: travels from the plan to every rank."""

from __future__ import annotations

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection
from ddp_perf.core.profiling import Profiling


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One launch: a case, and the session's round that it belongs to."""

    case: Case
    round: int
    import_paths: tuple[str, ...] = ()  # where a user's workload is imported from
    injections: tuple[Injection, ...] = ()  # those that apply to the case
    probe_steps: int = 8  # looked at in each run of the probe, after the timed ones
    profiling: Profiling | None = None
    records: str | None = None  # directory for the ranks' flight records, should they hang
    # All ranks run on cuda:0, over gloo: that proves DDP's CUDA path where there is one GPU. Their
    # times are those of a crowd, so no such launch is ever judged or stored.
    shared_gpu: bool = False
