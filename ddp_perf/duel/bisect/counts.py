"""The exact work of commits: each is counted once, and where it grows most is found by halves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.work import StepWork
from ddp_perf.duel.bisect.turns import CommitTurns
from ddp_perf.errors import DdpPerfError
from ddp_perf.work.changes import added_work
from ddp_perf.work.counting import count_case


class CommitCounts:
    """The counted steps of commits. ``known`` has those so far, or why they cannot be counted."""

    def __init__(self, turns: CommitTurns, on_count: Callable[[int], None]) -> None:
        self.known: dict[int, StepWork | str] = {}
        self._turns, self._on_count = turns, on_count
        self._longest_s = 0.0

    def of(self, place: int) -> StepWork | str:
        """Return the step of the commit, or why it cannot be counted."""
        if place not in self.known:
            begin = time.monotonic()
            self.known[place] = self._counted(place)
            self._longest_s = max(self._longest_s, time.monotonic() - begin)
            self._on_count(place)
        return self.known[place]

    def most_added(self, places: Sequence[int], *, until: float) -> tuple[int, ...]:
        """Return two of the places, between which the step's work grows most.

        They are next to each other, unless those between them cannot be counted, or not before
        ``time.monotonic()`` is ``until``. Nothing is returned if the last place adds no work to the
        first one. Each half of the line is compared by what it adds.
        """
        low, high = 0, len(places) - 1
        ends = (places[low], places[high])
        if not all(self._in_time(end, until) and self.of(end) for end in ends):
            return ()
        if not self._added(*ends):
            return ()
        while (middle := self._middle(places, low, high, until)) is not None:
            first = self._added(places[low], places[middle])
            second = self._added(places[middle], places[high])
            low, high = (low, middle) if first >= second else (middle, high)
        return places[low], places[high]

    def _middle(self, places: Sequence[int], low: int, high: int, until: float) -> int | None:
        """Return the number of a place between two, the middle one if it can be counted."""
        for number in sorted(range(low + 1, high), key=lambda one: abs(2 * one - low - high)):
            if not self._in_time(places[number], until):
                return None
            if isinstance(self.of(places[number]), StepWork):
                return number
        return None

    def _in_time(self, place: int, until: float) -> bool:
        return place in self.known or time.monotonic() + self._longest_s <= until

    def _added(self, before: int, after: int) -> float:
        old, new = self.of(before), self.of(after)
        if isinstance(old, StepWork) and isinstance(new, StepWork):
            return added_work(old, new)
        return 0.0

    def _counted(self, place: int) -> StepWork | str:
        try:
            turn = self._turns.turn(place)
            if not turn.case.trains:
                return "a collective by itself has no counts"
            step = count_case(turn.case, turn.launcher, turn.import_paths)
        except DdpPerfError as error:
            return str(error)
        return str(step) if isinstance(step, LaunchFailure) else step
