"""The supervisor's end of one rank."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import ForkContext
from pathlib import Path

import msgspec

from ddp_perf.core.case import Schedule
from ddp_perf.core.launch_request import LaunchRequest
from ddp_perf.core.result import RankResult
from ddp_perf.worker.heartbeat import Heartbeats
from ddp_perf.worker.rank import RankDone, RankError, RankFiles, Report, run_rank

_REPORT = msgspec.json.Decoder(RankError | RankDone)
_BEATS_PER_STEP = 2
_KILLED_S = 5.0  # a process in an uninterruptible wait outlives even SIGKILL


class RankProcess:
    """A forked rank: its report, its progress and its end."""

    def __init__(
        self,
        context: ForkContext,
        request: LaunchRequest,
        rank: int,
        directory: Path,
        heartbeats: Heartbeats,
        driver: Connection,
    ) -> None:
        self.rank = rank
        self.files = RankFiles(directory=directory, rank=rank)
        self.report: Report | None = None
        self.ended_at: float | None = None
        self.beats = 0
        self.reports, sender = context.Pipe(duplex=False)
        self.recorder, questions = context.Pipe()
        self._process = context.Process(
            target=_enter_rank,
            args=(
                *((driver, self.reports, self.recorder), request, rank, directory, heartbeats),
                *(sender, questions, os.getpid()),
            ),
        )
        self._process.start()
        sender.close()
        questions.close()
        self.exit_code: int | None = None
        self._last_progress = time.monotonic()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    @property
    def running(self) -> bool:
        return self.ended_at is None

    @property
    def failed(self) -> bool:
        """Reported an error, or ended without delivering a result and exiting with 0."""
        if isinstance(self.report, RankError):
            return True
        return not self.running and (self.report is None or self.exit_code != 0)

    @property
    def result(self) -> RankResult:
        assert isinstance(self.report, RankDone)
        return self.report.result

    def receive(self) -> None:
        """Take in the report, if it has come, and the end of the process."""
        ended = bool(wait_for([self.sentinel], timeout=0))  # before the pipe: it may say more
        if self.report is None and self.reports.poll():
            with contextlib.suppress(EOFError):
                self.report = _REPORT.decode(self.reports.recv_bytes())
                self._last_progress = time.monotonic()
        if ended and self.running:
            self.ended_at = time.monotonic()
            self._kill_group()  # before it is reaped: its pid is still its own
            self._process.join(_KILLED_S)
            self.exit_code = self._process.exitcode

    def note_progress(self, beats: int, now: float) -> None:
        if beats != self.beats:
            self.beats, self._last_progress = beats, now

    def overdue(self, schedule: Schedule, now: float) -> bool:
        """Silent for longer than its phase allows: start-up, or one step."""
        started = self.beats >= _BEATS_PER_STEP
        allowed = schedule.step_deadline_s if started else schedule.start_deadline_s
        return now - self._last_progress > allowed

    def terminate(self) -> None:
        if self.running:
            self._process.terminate()

    def join(self, timeout: float) -> None:
        if self.running and wait_for([self.sentinel], max(timeout, 0)):
            self.receive()

    def kill(self) -> None:
        """End it now, with whatever it started, and release what the supervisor holds."""
        if self.running:
            self._kill_group()
            self._process.kill()
            self._process.join(_KILLED_S)
            self.ended_at = time.monotonic()
        self.reports.close()
        self.recorder.close()
        if self._process.exitcode is not None:  # else the kernel cannot end it: a lost GPU
            self._process.close()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def _enter_rank(
    supervisors: tuple[Connection, ...],
    request: LaunchRequest,
    rank: int,
    directory: Path,
    heartbeats: Heartbeats,
    sender: Connection,
    questions: Connection,
    parent: int,
) -> None:
    """In the child: let go of the supervisor's ends, or their closing would not be seen."""
    for end in supervisors:
        end.close()
    run_rank(request, rank, directory, heartbeats, sender, questions, parent)
