"""The supervision of one launch: start the ranks, watch every one, and end them all."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import torch.multiprocessing as multiprocessing

from ddp_perf.core.case import Tier
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.work import CountRequest, RankCounted
from ddp_perf.launch.supervisor.agreement import check_agreement
from ddp_perf.launch.supervisor.output import beginnings, forget_output, keep_output
from ddp_perf.launch.supervisor.rank_process import RankProcess
from ddp_perf.launch.supervisor.watch import end_ranks, ending_orphans, watch_ranks
from ddp_perf.worker.heartbeat import Heartbeats


def run_launch(
    request: LaunchRequest, directory: Path, driver: Connection, alive: Callable[[], None]
) -> LaunchResult | LaunchFailure:
    """Run one launch to its end. Every rank has ended when this returns.

    ``alive`` is called so that the driver sees that this process runs: at least once a second
    while this waits for ranks, and just before a failure is described, which may take seconds.
    Raises EOFError if the driver closes the connection meanwhile.
    """
    started = datetime.datetime.now(datetime.timezone.utc)
    begin = time.monotonic()
    launch_directory = Path(tempfile.mkdtemp(dir=directory))
    heartbeats = Heartbeats(request.case.world_size)
    ranks: list[RankProcess] = []
    output = None
    if request.output is not None:
        forget_output(Path(request.output))
    try:
        with _ending(ranks, request.case.tier, alive):
            _start(request, launch_directory, heartbeats, driver, ranks)
            failure = watch_ranks(request, ranks, heartbeats, driver, alive)
            results = () if failure is not None else tuple(rank.result for rank in ranks)
            failure = failure or check_agreement(request, results)
            if failure is None and request.output is not None:
                printed = beginnings([rank.files.output for rank in ranks])
                output = keep_output(Path(request.output), printed)
    finally:
        shutil.rmtree(launch_directory, ignore_errors=True)
    if failure is not None:
        return failure
    return LaunchResult(
        case_id=request.case.id,
        round=request.round,
        ranks=results,
        started=started.isoformat(timespec="seconds"),
        wall_s=time.monotonic() - begin,
        output=output,
    )


def run_count(
    request: CountRequest, directory: Path, driver: Connection, alive: Callable[[], None]
) -> RankCounted | LaunchFailure:
    """Run the rank that counts, which is supervised like one of a launch."""
    heartbeats = Heartbeats(1, first=request.rank)
    rank_directory = Path(tempfile.mkdtemp(dir=directory))
    context = multiprocessing.get_context("fork")
    ranks: list[RankProcess] = []
    launch = _as_launch(request)
    try:
        with _ending(ranks, launch.case.tier, alive):
            ranks.append(
                RankProcess(context, request, request.rank, rank_directory, heartbeats, driver)
            )
            failure = watch_ranks(launch, ranks, heartbeats, driver, alive)
    finally:
        shutil.rmtree(rank_directory, ignore_errors=True)
    return ranks[0].counted if failure is None else failure


@contextlib.contextmanager
def _ending(ranks: Sequence[RankProcess], tier: Tier, alive: Callable[[], None]) -> Iterator[None]:
    """End the ranks that are started in the block, with all that they started."""
    with ending_orphans(alive):
        try:
            yield
        finally:
            end_ranks(ranks, tier, alive)


def _as_launch(request: CountRequest) -> LaunchRequest:
    """Return the launch for the supervision: no GPU is used, and steps take what a start takes."""
    schedule = msgspec.structs.replace(
        request.case.schedule, step_deadline_s=request.case.schedule.start_deadline_s
    )
    case = msgspec.structs.replace(request.case, tier="cpu", schedule=schedule)
    return LaunchRequest(case=case, round=0)


def _start(
    request: LaunchRequest,
    directory: Path,
    heartbeats: Heartbeats,
    driver: Connection,
    ranks: list[RankProcess],
) -> None:
    context = multiprocessing.get_context("fork")
    for rank in range(request.case.world_size):
        ranks.append(RankProcess(context, request, rank, directory, heartbeats, driver))
