"""A rank that is a fork of its supervisor."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext
from pathlib import Path

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.work import CountRequest
from ddp_perf.launch.supervisor.rank import SupervisedRank
from ddp_perf.worker.heartbeat import Heartbeats
from ddp_perf.worker.process import run_rank
from ddp_perf.worker.report import RankFiles

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
                directory,
                heartbeats,
                sender,
                questions,
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
    directory: Path,
    heartbeats: Heartbeats,
    sender: Connection,
    questions: Connection,
    parent: int,
) -> None:
    """Run the rank in the child, after closing the supervisor's ends of the connections.

    While the child has them open, nobody notices that the supervisor closes them.
    """
    for end in supervisors:
        end.close()
    run_rank(request, rank, directory, heartbeats, sender, questions, parent)
