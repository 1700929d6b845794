"""Count the step of a case: on its first rank, and on its last one, which has to agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.launch.launcher import Runtime
from ddp_perf.work.collectives import disagreement


class StepCounter(Protocol):
    """A launcher that can count a step: it runs one rank of a case alone."""

    def runtime(self, case: Case | None = None) -> Runtime:
        """Return the versions that ranks of ``case`` run on. Raises LaunchError."""
        ...

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        """Count one step of one rank. Raises LaunchError if the rank cannot be started."""
        ...

    def close(self) -> None:
        """End every process that still runs. A second call does nothing."""
        ...


def count_case(
    case: Case, counter: StepCounter, import_paths: Sequence[str] = ()
) -> StepWork | LaunchFailure:
    """Return the counts of rank 0, or why the step cannot be counted.

    A step that raises may need its values, which are zero: it is counted again with values
    computed. Those of a script always are. The last rank has to issue the collectives of rank 0,
    or training would hang. Raises LaunchError if a rank cannot be started.
    """
    first = CountRequest(
        case=case, compute=case.script is not None, import_paths=tuple(import_paths)
    )
    work = _count(first, counter)
    if isinstance(work, LaunchFailure) or case.world_size == 1:
        return work
    rank = case.world_size - 1
    last = _count(
        msgspec.structs.replace(first, rank=rank, compute=work.computed),
        counter,
    )
    if isinstance(last, LaunchFailure):
        return last
    difference = disagreement(work, last)
    if difference is None:
        return work
    return LaunchFailure(
        case_id=case.id,
        round=0,
        kind="disagreement",
        rank=None,
        detail=f"rank 0 and rank {rank} would wait for each other: {difference}",
    )


def _count(request: CountRequest, counter: StepCounter) -> StepWork | LaunchFailure:
    """Return the counts, with values computed if the step raises without them."""
    dry = counter.count(request)
    if request.compute or not isinstance(dry, LaunchFailure) or dry.kind != "exception":
        return dry
    computed = counter.count(msgspec.structs.replace(request, compute=True))
    if isinstance(computed, LaunchFailure) and computed.kind != "exception":
        why = f"{computed.detail}; values were computed, for without them: {dry.detail}"
        return msgspec.structs.replace(computed, detail=why)
    return computed
