"""The launches that a suite has yet to finish, and the time that they take."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.session.measure.bench import LaunchOutcome


class Pending:
    """The launches of a suite that are not finished.

    Each is expected to take as long as the newest launch of its case; before the first one, as
    long as in the baseline.
    """

    def __init__(self, expected_s: Mapping[str, float]) -> None:
        self.done = 0
        self._seconds = dict(expected_s)  # of a launch, by case id
        # By case id and node.
        self._waiting: collections.Counter[tuple[str, str | None]] = collections.Counter()

    def add(self, plan: Iterable[LaunchRequest]) -> None:
        """Add launches that are now planned."""
        self._waiting.update((request.case.id, request.node) for request in plan)

    def finish(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        """Note a finished launch. A case that failed is not launched again, on that node."""
        self.done += 1
        if isinstance(outcome, LaunchFailure):
            del self._waiting[request.case.id, request.node]
        else:
            self._waiting[request.case.id, request.node] -= 1
            self._seconds[request.case.id] = outcome.wall_s

    @property
    def total(self) -> int:
        """The number of launches, finished and not."""
        return self.done + self._waiting.total()

    def includes(self, case_id: str) -> bool:
        """Return whether a launch of the case is not finished."""
        return any(case == case_id for case, _ in +self._waiting)

    @property
    def left_s(self) -> float | None:
        """The seconds of all these launches; None if one of their cases was never timed."""
        waiting = +self._waiting  # without the cases that are finished
        if not {case_id for case_id, _ in waiting} <= self._seconds.keys():
            return None
        return sum(count * self._seconds[case_id] for (case_id, _), count in waiting.items())
