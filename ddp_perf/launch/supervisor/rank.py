"""The supervisor's side of a rank, which is a fork of it: its report, its progress and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import ForkContext
from typing import NoReturn

import msgspec

from ddp_perf.core.case import Schedule, Tier
from ddp_perf.core.launch import FACTS, RankResult
from ddp_perf.core.work import RankCounted
from ddp_perf.worker.report import (
    BEATS_PER_STEP,
    Heartbeats,
    Phase,
    RankChannels,
    RankDone,
    RankError,
    RankFiles,
    RankProgress,
    RankTimed,
    Report,
)

_MESSAGE: msgspec.json.Decoder[RankTimed | Report] = msgspec.json.Decoder(RankTimed | Report)
# The time that the kernel may take to remove an ended process. It cannot remove one in an
# uninterruptible wait. Contexts of eight GPUs and their memory take longer.
REAPED_S: dict[Tier, float] = {"cpu": 5.0, "gpu": 30.0}


_POLLS, _POLL_S = 200, 0.001  # then the supervisor watches the other ranks again


class RankProcess:
    """A forked rank.

    ``run`` is called in it with its channels, and does not return. ``heartbeats`` are those of all
    ranks of its launch, and ``directory`` is that of the launch.
    """

    def __init__(
        self,
        context: ForkContext,
        run: Callable[[RankChannels], NoReturn],
        files: RankFiles,
        tier: Tier,
        heartbeats: Heartbeats,
    ) -> None:
        self.files = files
        self.report: Report | None = None
        self.lost_facts: str | None = None  # why it ends, or is ended, before its report
        self.hangs = False  # after the timed steps: other ranks may wait for it
        self.ended_at: float | None = None
        # None although ``running`` is False: the kernel has not removed the process.
        self.exit_code: int | None = None
        self.progress = RankProgress(beats=0, phase=Phase.START, phase_beats=0)
        self._timed: RankTimed | None = None
        self._reaped_s = REAPED_S[tier]
        self._gone = False
        self.reports, sender = context.Pipe(duplex=False)
        self.recorder, questions = context.Pipe()
        channels = RankChannels(files.directory, heartbeats, reports=sender, questions=questions)
        self._process = context.Process(target=self._enter, args=(run, channels))
        self._process.start()
        sender.close()
        questions.close()
        self._last_progress = time.monotonic()

    def _enter(self, run: Callable[[RankChannels], NoReturn], channels: RankChannels) -> None:
        """Run the rank in the child, after closing the supervisor's ends of the connections.

        While the child has them open, nobody notices that the supervisor closes them.
        """
        self.reports.close()
        self.recorder.close()
        run(channels)

    @property
    def rank(self) -> int:
        return self.files.rank

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def sentinel(self) -> int:
        """A descriptor that is ready as soon as the process has ended."""
        return self._process.sentinel

    @property
    def running(self) -> bool:
        """True until the rank has ended and its exit code is known, or given up on."""
        return not self._gone

    @property
    def failed(self) -> bool:
        """True if the rank reported an error, ended without times, or with a code other than 0.

        A result without an exit code is no failure: a GPU context may be slow to end. Nor is an end
        between the times and the report.
        """
        if isinstance(self.report, RankError):
            return True
        if self.running:
            return False
        return self._timed is None if self.report is None else self.exit_code not in (0, None)

    @property
    def is_timed(self) -> bool:
        """True if its times are there, though it may examine its steps still."""
        return self._timed is not None and not isinstance(self.report, RankError)

    @property
    def has_left(self) -> bool:
        """True if it has ended in the middle of what other ranks may wait for it in."""
        if isinstance(self.report, RankDone):
            return self.report.left
        return self.ended_at is not None and self.is_timed

    @property
    def is_symptom(self) -> bool:
        """True if it failed because another rank failed."""
        return isinstance(self.report, RankError) and self.report.peer_lost

    @property
    def result(self) -> RankResult:
        """The measurements of the rank, or its times if it ended before it had the facts.

        What it reports after others had waited in vain for it is worth nothing: they were ended.
        """
        if isinstance(self.report, RankDone) and self.lost_facts is None:
            return self.report.result
        assert self._timed is not None
        if self._timed.whole:
            return self._timed.result
        why = self.lost_facts or "the rank ended while it was examined"
        return msgspec.structs.replace(self._timed.result, missing=dict.fromkeys(FACTS, why))

    @property
    def counted(self) -> RankCounted:
        assert isinstance(self.report, RankCounted)
        return self.report

    def receive(self) -> None:
        """Read the report if it has arrived, and note the end of the process."""
        # Before the pipe is read: a process that has ended has written all of its report.
        ended = bool(wait([self.sentinel], timeout=0))
        with contextlib.suppress(EOFError, ConnectionResetError):
            while self.report is None and self.reports.poll():
                message = _MESSAGE.decode(self.reports.recv_bytes())
                self._last_progress = time.monotonic()
                if isinstance(message, RankTimed):
                    self._timed = message
                else:
                    self.report = message
        if ended and self.running:
            if self.ended_at is None:
                self.ended_at = time.monotonic()
                self._kill_group()  # before it is reaped, while its pid still belongs to it
            self.exit_code = self._reap()
            overdue = time.monotonic() - self.ended_at > self._reaped_s
            self._gone = self.exit_code is not None or overdue

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

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
