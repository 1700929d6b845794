"""The watch over the ranks of a machine: every one is waited for, and every one is ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait

from ddp_perf.core.case import Tier
from ddp_perf.core.launch import PEER_HUNG, PEER_LEFT, LaunchFailure, LaunchRequest
from ddp_perf.launch.supervisor.driver import Driver
from ddp_perf.launch.supervisor.output import cut_output
from ddp_perf.launch.supervisor.postmortem import (
    describe_failure,
    describe_hang,
    how_it_ended,
    hung_examination,
)
from ddp_perf.launch.supervisor.rank import REAPED_S, RankProcess
from ddp_perf.system.host.processes import children_of
from ddp_perf.worker.report import Heartbeats

_GRACE_S = 0.2  # for the other ranks to report, before they are ended
_TERMINATE_S = 0.2
_ORPHANS_S, _POLL_S = 5.0, 0.001  # the kernel cannot end a process in an uninterruptible wait
_LEFT_S = 5.0  # for the others to end their examination after a rank has left it


def watch_ranks(
    request: LaunchRequest,
    ranks: Sequence[RankProcess],
    heartbeats: Heartbeats,
    driver: Driver,
) -> LaunchFailure | None:
    """Wait until every rank has delivered a result and exited with code 0, or one has failed.

    What fails once all ranks have delivered their times ends the wait, and no rank has failed.
    The driver sees that this process runs: it gets a beat at least once a second while this waits,
    and just before a failure is described, which may take seconds. Raises EOFError if the driver
    closes the connection, and EndedError if it asks for the end.
    """
    schedule = request.case.schedule
    tick = min(schedule.start_deadline_s, schedule.step_deadline_s, 4.0) / 4
    left_at: float | None = None
    while running := [rank for rank in ranks if rank.running]:
        driver.beat()
        _wait(running, driver, tick)
        if any(rank.failed for rank in ranks):
            _gather(ranks, driver)
            driver.beat()
            return describe_failure(request, ranks)
        for rank in running:
            cut_output(rank.files.output)
        now = time.monotonic()
        if left_at is None and any(rank.has_left for rank in ranks):
            left_at = now
        for rank, progress in zip(ranks, heartbeats.read(), strict=True):
            rank.note_progress(progress, now)
        is_timed = all(rank.is_timed for rank in ranks)
        if is_timed and left_at is not None and now - left_at > _LEFT_S:
            _give_up(running, PEER_LEFT)
            break
        if any(rank.overdue(schedule, now) for rank in running):
            driver.beat()
            if not is_timed:
                return describe_hang(request, ranks)
            behind, why = hung_examination(request, ranks)
            _give_up(running, PEER_HUNG)
            _give_up(behind, why)
            for rank in behind:
                rank.hangs = True
            break
    for rank in ranks:
        if rank.report is None and rank.lost_facts is None:
            rank.lost_facts = how_it_ended(rank)
    return None


def _give_up(running: Sequence[RankProcess], why: str) -> None:
    for rank in running:
        if rank.report is None:
            rank.lost_facts = why


def _wait(running: Sequence[RankProcess], driver: Driver, timeout: float) -> None:
    """Wait until a rank reports or ends, the driver closes the connection, or the time is over."""
    readers = [rank.reports for rank in running if rank.report is None]
    wait([driver.fileno(), *readers, *(rank.sentinel for rank in running)], timeout)
    driver.check()
    for rank in running:
        rank.receive()


def _gather(ranks: Sequence[RankProcess], driver: Driver) -> None:
    """Wait a moment for the other ranks: the first failure noticed may not be the first one."""
    end = time.monotonic() + _GRACE_S
    while (left := end - time.monotonic()) > 0:
        running = [rank for rank in ranks if rank.running]
        if not running:
            return
        driver.beat()
        _wait(running, driver, left)


def end_ranks(ranks: Sequence[RankProcess], tier: Tier, driver: Driver) -> None:
    """Terminate, kill and reap all ranks, with the processes that they started."""
    for rank in ranks:
        rank.terminate()
    _await_ends(ranks, _TERMINATE_S, driver)
    for rank in ranks:
        rank.kill()
    _await_ends(ranks, REAPED_S[tier], driver)
    for rank in ranks:
        rank.close()


def _await_ends(ranks: Sequence[RankProcess], patience_s: float, driver: Driver) -> None:
    end = time.monotonic() + patience_s
    while running := [rank for rank in ranks if rank.running]:
        driver.beat()
        left = end - time.monotonic()
        if left <= 0:
            return
        wait([rank.sentinel for rank in running], min(left, 1.0))
        for rank in running:
            rank.receive()


@contextlib.contextmanager
def ending_orphans(driver: Driver) -> Iterator[None]:
    """Kill at the end what the ranks of the block left behind in sessions of their own: daemons.

    This process must adopt them, and have no other new children.
    """
    own = frozenset(children_of(os.getpid()))
    try:
        yield
    finally:
        end = time.monotonic() + _ORPHANS_S
        while left := frozenset(children_of(os.getpid())) - own:
            if time.monotonic() > end:
                break
            driver.beat()
            for pid in left:  # one that has ended has children that are adopted now
                # A set-user-ID one may only end by itself.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(_POLL_S)
