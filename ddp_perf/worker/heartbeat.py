"""Progress of every rank, in memory shared with the supervisor: a store, no system call."""

from __future__ import annotations

import ctypes
import enum
import mmap
from typing import NamedTuple

BEATS_PER_STEP = 2


class Phase(enum.IntEnum):
    """What a rank does, in the order in which it gets there."""

    START = 0  # it is built, and settles
    WARM_UP = 1  # a GPU's, before the timed loop
    TIMED = 2  # the timed loop; on a GPU the host queues its steps
    FOLLOWED = 3  # the host has queued all steps, and waits for the GPU to do each
    AFTER = 4  # whatever comes after the timed steps


class Progress(NamedTuple):
    """How far a rank is."""

    beats: int  # in all
    phase: Phase
    phase_beats: int

    @property
    def step(self) -> int | None:
        """The step of the timed loop that is being done, from 1 on; 0 where a GPU has not come to
        the first; None in a phase whose steps nobody counts.
        """
        if self.phase is Phase.TIMED:
            return self.phase_beats // BEATS_PER_STEP + 1
        return self.phase_beats if self.phase is Phase.FOLLOWED else None


class _Words(ctypes.Structure):
    _fields_ = (
        ("beats", ctypes.c_uint64),
        ("phase", ctypes.c_uint64),
        ("entered", ctypes.c_uint64),  # the beats when the phase began
    )


class Heartbeats:
    """The progress of each rank. Made before the ranks are forked, so that all share the pages.

    In a step a rank beats when its forward is done and when the step is done; so the rank that
    hangs is the one that is behind, also where the others wait for it. In phase FOLLOWED it beats
    as the GPU gets to the timed loop, and then once a step.
    """

    def __init__(self, world_size: int) -> None:
        self._memory = mmap.mmap(-1, world_size * ctypes.sizeof(_Words))
        self._ranks = (_Words * world_size).from_buffer(self._memory)

    def beat(self, rank: int) -> None:
        self._ranks[rank].beats += 1

    def enter(self, rank: int, phase: Phase) -> None:
        """Begin a phase: its beats are counted from here on."""
        words = self._ranks[rank]
        words.entered = words.beats
        words.phase = phase

    def read(self) -> list[Progress]:
        return [
            Progress(
                beats=words.beats,
                phase=Phase(words.phase),
                phase_beats=words.beats - words.entered,
            )
            for words in self._ranks
        ]
