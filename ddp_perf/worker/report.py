"""The report and the progress of a rank, as its supervisor reads them. Torch is not imported."""

from __future__ import annotations

import contextlib
import enum
import mmap
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddp_perf.core.launch import RankResult
from ddp_perf.core.work import RankCounted

# The report of a rank, and its files, as its supervisor reads them. Torch is not imported.


STACK_SIGNAL = signal.SIGUSR1  # the rank writes the stacks of its threads


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


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of a rank that the node process did not fork."""

    rank: int
    local_rank: int
    pid: int


class NodeFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files through which a node process and its ranks meet."""

    directory: Path

    @property
    def request(self) -> Path:
        return self.directory / "request.json"

    @property
    def heartbeats(self) -> Path:
        """A link to memory of the node process: a disk would write every beat."""
        return self.directory / "heartbeats"

    @property
    def torchrun(self) -> Path:
        """Its pid, which torchrun's process writes before it becomes torchrun."""
        return self.directory / "torchrun.pid"

    @contextlib.contextmanager
    def socket_address(self) -> Iterator[str]:
        """Give the address of the node process's socket, however long the directory's name is.

        The address of a socket has at most 107 bytes.
        """
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{directory}/ranks"
        finally:
            os.close(directory)


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


def bytes_of_heartbeats(ranks: int) -> int:
    """Return the size of a file for the Heartbeats of so many ranks."""
    return ranks * _WORDS * _BYTES


class Heartbeats:
    """The progress of the ranks of one node.

    Forked ranks share its pages: it is created before them. Other ranks map the same ``file``,
    which must be that large; ``first`` is the global rank of the node's first one.

    In each step a rank beats BEATS_PER_STEP times: after its forward and at the end. So the rank
    that hangs has fewer beats than the ranks that wait for it. In phase FOLLOWED a rank beats once
    when the GPU reaches the timed loop, and then once a step.
    """

    def __init__(self, ranks: int, *, file: int = -1, first: int = 0) -> None:
        memory = mmap.mmap(file, bytes_of_heartbeats(ranks))
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
