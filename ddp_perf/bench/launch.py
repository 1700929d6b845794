"""A launch whose ranks something else started: each measures, and rank 0 reports the results."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec
from torch.distributed import HashStore, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from ddp_perf.bench.flags import Flags, Position, position_on
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult, RankResult
from ddp_perf.core.measurement import Measurement
from ddp_perf.errors import LaunchError
from ddp_perf.launch.supervisor.postmortem import check_agreement
from ddp_perf.report.case_text import case_summary
from ddp_perf.stats.summary import summaries_of
from ddp_perf.system.gpu.gpus import accelerator_slug, find_gpus
from ddp_perf.system.host.host import host_name
from ddp_perf.worker.process_group import measure_in_group
from ddp_perf.worker.rank_context import Examination, RankStart
from ddp_perf.worker.report import Heartbeats

# A launch whose ranks something else started: each measures, and rank 0 receives the results.


_T = TypeVar("_T")


class Meeting(NamedTuple):
    """The store by which the ranks found each other, and where this one is among them."""

    store: Store
    position: Position

    @property
    def ours(self) -> Store:
        """The part of the store that the process group does not use."""
        return PrefixStore("ddp_perf.bench", self.store)


def meet(flags: Flags, position: Position) -> Meeting:
    """Return where the ranks meet, after a check that all were started alike. Collective."""
    met = Meeting(_store(position), position)
    _check_flags(met, flags)
    if position.states_nodes:
        return met
    hosts = _of_each_rank(met, "host", host_name(), str)
    return met._replace(position=position_on(position, hosts))


def run_as_rank(request: LaunchRequest, meeting: Meeting) -> LaunchResult | LaunchFailure | None:
    """Measure the request's case on this rank; return the outcome on rank 0, None on the others.

    Collective. The results travel through the store by which the ranks found each other, since
    the process group ends with the measurement. Nothing supervises the ranks but what started them.
    """
    started = datetime.datetime.now(datetime.timezone.utc)
    begin = time.monotonic()
    store, position = meeting
    ours = meeting.ours
    start = RankStart(
        rank=position.rank,
        local_rank=_place_on_node(request, meeting),
        heartbeats=Heartbeats(position.world_size),
        store=store,
        examination=Examination(),  # nothing supervises the rank
    )
    result = measure_in_group(request, start)
    ours.set(f"result of rank {position.rank}", msgspec.json.encode(result).decode())
    if position.rank > 0:
        return None
    ranks = tuple(
        msgspec.json.decode(ours.get(f"result of rank {rank}"), type=RankResult)
        for rank in range(position.world_size)
    )
    return check_agreement(request, ranks) or LaunchResult(
        case_id=request.case.id,
        round=request.round,
        ranks=ranks,
        started=started.isoformat(timespec="seconds"),
        wall_s=time.monotonic() - begin,
    )


def gpu_index(meeting: Meeting, seen: Sequence[str]) -> int:
    """Return the index of this rank's GPU among those that it sees, by their UUIDs. Collective.

    It is the local rank, unless each rank sees one GPU alone, as srun's --gpus-per-task=1 has it.
    Raises LaunchError if two ranks then see the same one.
    """
    each = _of_each_rank(meeting, "GPUs", [*seen], list[str])
    if any(len(gpus) != 1 for gpus in each):
        return meeting.position.local_rank
    first_on: dict[str, int] = {}
    for rank, (gpu,) in enumerate(each):
        other = first_on.setdefault(gpu, rank)
        if other != rank:
            raise LaunchError(
                f"ranks {other} and {rank} see one GPU, and the same one: {gpu}; make one GPU"
                " visible for each rank, or start fewer ranks"
            )
    return 0


def _place_on_node(request: LaunchRequest, meeting: Meeting) -> int:
    """Return the number by which this rank chooses its GPU or its cores. Collective."""
    if request.case.tier == "cpu":
        return meeting.position.local_rank
    return gpu_index(meeting, [gpu.uuid for gpu in find_gpus().gpus])


def _store(position: Position) -> Store:
    """Return torchrun's store; that of a process by itself is in its memory."""
    if position.alone:
        return HashStore()
    store: Store
    store, _, _ = next(rendezvous("env://"))
    return store


def _of_each_rank(meeting: Meeting, what: str, own: _T, type_: type[_T]) -> list[_T]:
    """Return what every rank states under this name, by rank. Collective."""
    store, position = meeting.ours, meeting.position
    store.set(f"{what} of rank {position.rank}", msgspec.json.encode(own).decode())
    return [
        msgspec.json.decode(store.get(f"{what} of rank {rank}"), type=type_)
        for rank in range(position.world_size)
    ]


def _check_flags(meeting: Meeting, flags: Flags) -> None:
    """Check that all ranks were given the same flags. Other work would hang them. Collective.

    Each rank looks at all others, so that each fails: torchrun ends only the ranks of its node.
    """
    first, *others = _of_each_rank(meeting, "flags", flags, Flags)
    for rank, other in enumerate(others, start=1):
        for name in Flags.__struct_fields__:
            theirs, own = getattr(first, name), getattr(other, name)
            if theirs != own:
                raise LaunchError(
                    f"{name} is {own} on rank {rank}, but {theirs} on rank 0; give torchrun the"
                    " same flags on each node"
                )


# The report of rank 0: the placement of all ranks, the summary block, and the traces.


def report_text(request: LaunchRequest, launch: LaunchResult) -> str:
    """Return the report of a launch, as ``pytest -vv`` shows a case."""
    case = request.case
    measurement = Measurement(case=case, launches=(launch,), failures=())
    summaries = summaries_of({case.id: measurement})[case.id]
    text = case_summary(measurement, summaries, accelerator_slug(find_gpus()))
    return "\n".join([text, *_traces(request, launch)])


def _traces(request: LaunchRequest, launch: LaunchResult) -> list[str]:
    """Return where each rank wrote its trace, with its host if there are several."""
    if request.profiling is None:
        return []
    lines = ["", "traces, for ui.perfetto.dev and ddp-perf trace:"]
    for rank in launch.ranks:
        place = rank.placement
        path = os.path.relpath(request.profiling.file(place.rank))
        lines.append(f"{path} on {place.host}" if request.case.nodes > 1 else path)
    return lines
