"""The report and the progress of a rank, as its supervisor reads them. Torch is not imported."""

from __future__ import annotations

import enum
import mmap
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddp_perf.core.launch import RankResult
from ddp_perf.core.work import RankCounted

# The report of a rank, and its files, as its supervisor reads them. Torch is not imported.


STACK_SIGNAL = signal.SIGUSR1  # the rank writes the stacks of its threads


LAUNCH_VARIABLE = "DDP_PERF_LAUNCH"  # of ranks on several nodes: a name of their launch alone


class RankError(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """The error of a rank, as the rank itself reports it."""

    detail: str
    traceback: str
    user_frames: str = ""  # the traceback without the frames of this package and of torch
    at: float  # time.monotonic(), which is one clock for all processes of a machine
    peer_lost: bool  # the error is a symptom: another rank died
    exit_code: int | None  # of a SystemExit
    needs_gpu: bool = False  # the step of a script cannot be counted on a CPU


class RankTimed(msgspec.Struct, frozen=True, kw_only=True, tag="timed"):
    """The times of a rank, before it examines anything. Its report follows, unless it ends."""

    result: RankResult
    whole: bool = False  # it has the facts as well: the rank only waits for the others to end


class RankDone(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The measurements of a rank."""

    result: RankResult
    # It ended its examination in the middle, so other ranks may wait for it in a collective.
    left: bool = False


Report = RankError | RankDone | RankCounted


class RankFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one rank in the launch's directory."""

    directory: Path
    rank: int

    @property
    def output(self) -> Path:
        return self.directory / f"rank{self.rank}.out"

    @property
    def stacks(self) -> Path:
        return self.directory / f"rank{self.rank}.stacks"


# The progress of the ranks of a node, in memory shared with their supervisor.
#
# A beat is a store to that memory and needs no system call.


BEATS_PER_STEP = 2  # one after the forward, one at the end of the step


class Phase(enum.IntEnum):
    """The phases of a rank, in their order."""

    START = 0  # the steps are built, and run until they are settled
    WARM_UP = 1  # of a GPU, before the timed loop
    TIMED = 2  # the timed loop; on a GPU the host queues its steps
    FOLLOWED = 3  # the host has queued all steps, and follows the GPU through them
    AFTER = 4  # everything after the timed steps


class RankProgress(NamedTuple):
    """The progress of one rank."""

    beats: int  # in all phases together
    phase: Phase
    phase_beats: int

    @property
    def step(self) -> int | None:
        """The number of the timed step that the rank is in, from 1 on.

        0 if a GPU has not reached the first timed step; None in a phase without numbered steps.
        """
        if self.phase is Phase.TIMED:
            return self.phase_beats // BEATS_PER_STEP + 1
        return self.phase_beats if self.phase is Phase.FOLLOWED else None


# The words of a rank: its beats, its phase, and the number of beats at which the phase began.
_BEATS, _PHASE, _ENTERED = range(3)
_WORDS = 3
_BYTES = 8  # of a word


class Heartbeats:
    """The progress of the ranks of one node.

    The ranks, which are forked later, share its pages. ``first`` is the global rank of the node's
    first one.

    In each step a rank beats BEATS_PER_STEP times: after its forward and at the end. So the rank
    that hangs has fewer beats than the ranks that wait for it. In phase FOLLOWED a rank beats once
    when the GPU reaches the timed loop, and then once a step.
    """

    def __init__(self, ranks: int, *, first: int = 0) -> None:
        memory = mmap.mmap(-1, ranks * _WORDS * _BYTES)
        self._words = memoryview(memory).cast("Q")  # the fastest to write
        self._first = first

    def beat(self, rank: int) -> None:
        """Count one beat of a rank."""
        self._words[(rank - self._first) * _WORDS + _BEATS] += 1

    def enter(self, rank: int, phase: Phase) -> None:
        """Begin a phase, and count its beats from zero."""
        at = (rank - self._first) * _WORDS
        self._words[at + _ENTERED] = self._words[at + _BEATS]
        self._words[at + _PHASE] = phase

    def read(self) -> list[RankProgress]:
        """Return the progress of each rank, by rank."""
        words = self._words.tolist()
        return [
            RankProgress(
                beats=words[at + _BEATS],
                phase=Phase(words[at + _PHASE]),
                phase_beats=words[at + _BEATS] - words[at + _ENTERED],
            )
            for at in range(0, len(words), _WORDS)
        ]


class RankChannels(NamedTuple):
    """The channels of a rank to its supervisor, and the directory of this launch alone."""

    directory: Path
    heartbeats: Heartbeats
    reports: Connection  # receives one Report
    questions: Connection
