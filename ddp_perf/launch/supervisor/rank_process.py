"""The supervisor's side of one rank."""

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

from ddp_perf.core.case import Schedule, Tier
from ddp_perf.core.launch import LaunchRequest, RankResult
from ddp_perf.worker.heartbeat import BEATS_PER_STEP, Heartbeats, Phase, RankProgress
from ddp_perf.worker.process import RankDone, RankError, RankFiles, Report, run_rank

_REPORT = msgspec.json.Decoder(RankError | RankDone)
# The time that the kernel may take to remove an ended process. It cannot remove one in an
# uninterruptible wait. Contexts of eight GPUs and their memory take longer.
REAPED_S: dict[Tier, float] = {"cpu": 5.0, "gpu": 30.0}
_POLLS, _POLL_S = 200, 0.001  # then the supervisor watches the other ranks again


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
        # None although ``running`` is False: the kernel has not removed the process.
        self.exit_code: int | None = None
        self.progress = RankProgress(beats=0, phase=Phase.START, phase_beats=0)
        self.reports, sender = context.Pipe(duplex=False)
        self.recorder, questions = context.Pipe()
        self._process = context.Process(
            target=_enter_rank,
            args=(
                (driver, self.reports, self.recorder),
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
        self._reaped_s = REAPED_S[request.case.tier]
        self._gone = False
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
        """True until the rank has ended and its exit code is known, or given up on."""
        return not self._gone

    @property
    def failed(self) -> bool:
        """True if the rank reported an error, ended without a result, or with a code other than 0.

        A result without an exit code is no failure: a GPU context may be slow to end.
        """
        if isinstance(self.report, RankError):
            return True
        return not self.running and (self.report is None or self.exit_code not in (0, None))

    @property
    def result(self) -> RankResult:
        assert isinstance(self.report, RankDone)
        return self.report.result

    def receive(self) -> None:
        """Read the report if it has arrived, and note the end of the process."""
        # Before the pipe is read: a process that has ended has written all of its report.
        ended = bool(wait_for([self.sentinel], timeout=0))
        if self.report is None and self.reports.poll():
            with contextlib.suppress(EOFError):
                self.report = _REPORT.decode(self.reports.recv_bytes())
                self._last_progress = time.monotonic()
        if ended and self.running:
            if self.ended_at is None:
                self.ended_at = time.monotonic()
                self._kill_group()  # before it is reaped, while its pid still belongs to it
            self.exit_code = self._reap()
            overdue = time.monotonic() - self.ended_at > self._reaped_s
            self._gone = self.exit_code is not None or overdue

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

    def note_progress(self, progress: RankProgress, now: float) -> None:
        if progress != self.progress:
            self.progress, self._last_progress = progress, now

    def overdue(self, schedule: Schedule, now: float) -> bool:
        """Return whether it made no progress for longer than the deadline of its phase.

        The phase is the start, or one step.
        """
        if self.ended_at is not None:
            return False  # the kernel removes it
        started = self.progress.beats >= BEATS_PER_STEP
        allowed = schedule.step_deadline_s if started else schedule.start_deadline_s
        return now - self._last_progress > allowed

    def terminate(self) -> None:
        if self.running:
            self._process.terminate()

    def kill(self) -> None:
        """Kill the rank, with all processes that it started."""
        if self.running:
            self._kill_group()
            self._process.kill()

    def close(self) -> None:
        """Close the supervisor's connections to the rank."""
        self.reports.close()
        self.recorder.close()
        if self._process.exitcode is not None:  # None: the kernel cannot end it, as with a lost GPU
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
    """Run the rank in the child, after closing the supervisor's ends of the connections.

    While the child has them open, nobody notices that the supervisor closes them.
    """
    for end in supervisors:
        end.close()
    run_rank(request, rank, directory, heartbeats, sender, questions, parent)
