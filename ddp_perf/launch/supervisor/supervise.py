"""The supervision of a launch by a forkserver: its ranks are forked, watched, and all ended."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext
from pathlib import Path

import msgspec
import torch.multiprocessing as multiprocessing

from ddp_perf.core.case import Tier
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.work import CountRequest, RankCounted
from ddp_perf.launch.supervisor.output import beginnings, forget_output, keep_output
from ddp_perf.launch.supervisor.postmortem import check_agreement
from ddp_perf.launch.supervisor.rank import SupervisedRank
from ddp_perf.launch.supervisor.watch import end_ranks, ending_orphans, watch_ranks
from ddp_perf.worker.process import run_rank
from ddp_perf.worker.report import Heartbeats, RankChannels, RankFiles

# A rank that is a fork of its supervisor.


_POLLS, _POLL_S = 200, 0.001  # then the supervisor watches the other ranks again


class RankProcess(SupervisedRank):
    """A forked rank: its report, its progress and its end."""

    def __init__(
        self,
        context: ForkContext,
        request: LaunchRequest | CountRequest,
        rank: int,
        directory: Path,
        heartbeats: Heartbeats,
        driver: Connection,
    ) -> None:
        reports, sender = context.Pipe(duplex=False)
        recorder, questions = context.Pipe()
        self._process = context.Process(
            target=_enter_rank,
            args=(
                (driver, reports, recorder),
                request,
                rank,
                RankChannels(directory, heartbeats, reports=sender, questions=questions),
                os.getpid(),
            ),
        )
        self._process.start()
        sender.close()
        questions.close()
        super().__init__(
            RankFiles(directory=directory, rank=rank),
            request.case.tier,
            reports=reports,
            recorder=recorder,
            began=time.monotonic(),
        )

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    def close(self) -> None:
        super().close()
        if self._process.exitcode is not None:  # None: the kernel cannot end it, as with a lost GPU
            self._process.close()

    def _reap(self) -> int | None:
        """Return the exit code, or None if the kernel has not removed the process.

        A process closes its files, which ends the wait, before it can be reaped. In between the
        driver of a GPU takes time, and ``join`` would wait for all of it, whatever its timeout.
        """
        for _ in range(_POLLS):
            code = self._process.exitcode
            if code is not None:
                return code
            time.sleep(_POLL_S)
        return None

    def _signal(self, number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            self._process.kill()
        else:
            self._process.terminate()


def _enter_rank(
    supervisors: tuple[Connection, ...],
    request: LaunchRequest | CountRequest,
    rank: int,
    channels: RankChannels,
    parent: int,
) -> None:
    """Run the rank in the child, after closing the supervisor's ends of the connections.

    While the child has them open, nobody notices that the supervisor closes them.
    """
    for end in supervisors:
        end.close()
    run_rank(request, rank, channels, parent)


# The supervision of one launch: start the ranks, watch every one, and end them all.


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
