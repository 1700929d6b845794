"""The progress of the ranks of a node, in memory shared with their supervisor.

A beat is a store to that memory and needs no system call.
"""

from __future__ import annotations

import enum
import mmap
from typing import NamedTuple

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
