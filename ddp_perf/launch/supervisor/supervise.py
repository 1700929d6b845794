"""The supervision of one launch: start the ranks, watch every one, and end them all."""

from __future__ import annotations

import datetime
import shutil
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch.multiprocessing as multiprocessing

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.launch.supervisor.output import forget_output, keep_output
from ddp_perf.launch.supervisor.postmortem import check_agreement, describe_failure, describe_hang
from ddp_perf.launch.supervisor.rank_process import REAPED_S, RankProcess
from ddp_perf.worker.heartbeat import Heartbeats

_GRACE_S = 0.2  # for the other ranks to report, before they are ended
_TERMINATE_S = 0.2


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
        _start(request, launch_directory, heartbeats, driver, ranks)
        failure = _watch(request, ranks, heartbeats, driver, alive)
        failure = failure or check_agreement(request, ranks)
        if failure is None and request.output is not None:
            output = keep_output(Path(request.output), [rank.files.output for rank in ranks])
    finally:
        _end(ranks, REAPED_S[request.case.tier], alive)
        shutil.rmtree(launch_directory, ignore_errors=True)
    if failure is not None:
        return failure
    return LaunchResult(
        case_id=request.case.id,
        round=request.round,
        ranks=tuple(rank.result for rank in ranks),
        started=started.isoformat(timespec="seconds"),
        wall_s=time.monotonic() - begin,
        output=output,
    )


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


def _watch(
    request: LaunchRequest,
    ranks: list[RankProcess],
    heartbeats: Heartbeats,
    driver: Connection,
    alive: Callable[[], None],
) -> LaunchFailure | None:
    """Wait until every rank has delivered a result and exited with code 0, or one has failed."""
    schedule = request.case.schedule
    tick = min(schedule.start_deadline_s, schedule.step_deadline_s, 4.0) / 4
    while running := [rank for rank in ranks if rank.running]:
        alive()
        _wait(running, driver, tick)
        if any(rank.failed for rank in ranks):
            _gather(ranks, driver, alive)
            alive()
            return describe_failure(request, ranks)
        now = time.monotonic()
        for rank, progress in zip(ranks, heartbeats.read(), strict=True):
            rank.note_progress(progress, now)
        if any(rank.overdue(schedule, now) for rank in running):
            alive()
            return describe_hang(request, ranks)
    return None


def _wait(running: list[RankProcess], driver: Connection, timeout: float) -> None:
    """Wait until a rank reports or ends, the driver closes the connection, or the time is over."""
    readers = [rank.reports for rank in running if rank.report is None]
    ready = wait([driver, *readers, *(rank.sentinel for rank in running)], timeout)
    if driver in ready:
        driver.recv_bytes()  # raises EOFError: the driver sends nothing during a launch
    for rank in running:
        rank.receive()


def _gather(ranks: list[RankProcess], driver: Connection, alive: Callable[[], None]) -> None:
    """Wait a moment for the other ranks: the first failure noticed may not be the first one."""
    end = time.monotonic() + _GRACE_S
    while (left := end - time.monotonic()) > 0:
        running = [rank for rank in ranks if rank.running]
        if not running:
            return
        alive()
        _wait(running, driver, left)


def _end(ranks: list[RankProcess], reaped_s: float, alive: Callable[[], None]) -> None:
    """Terminate, kill and reap all ranks, with the processes that they started."""
    for rank in ranks:
        rank.terminate()
    _await_ends(ranks, _TERMINATE_S, alive)
    for rank in ranks:
        rank.kill()
    _await_ends(ranks, reaped_s, alive)
    for rank in ranks:
        rank.close()


def _await_ends(ranks: list[RankProcess], patience_s: float, alive: Callable[[], None]) -> None:
    end = time.monotonic() + patience_s
    while running := [rank for rank in ranks if rank.running]:
        alive()
        left = end - time.monotonic()
        if left <= 0:
            return
        wait([rank.sentinel for rank in running], min(left, 1.0))
        for rank in running:
            rank.receive()
