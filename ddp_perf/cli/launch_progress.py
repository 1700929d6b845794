"""Progress of a known number of launches: a live bar on a terminal, else a line for each."""

from __future__ import annotations

import sys
from types import TracebackType

from ddp_perf.cli.progress import write_line
from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.render.live_bar import LiveBar
from ddp_perf.render.units import milliseconds
from ddp_perf.session.measure.bench import LaunchOutcome


class LaunchProgress:
    """A bar on stderr, so that stdout contains only the result."""

    def __init__(self, launches: int) -> None:
        self._launches = launches
        self._done = 0
        self._bar = LiveBar(sys.stderr)

    def __enter__(self) -> LaunchProgress:
        self._bar.__enter__()
        self._bar.show(0, self._launches, f"launch 1 of {self._launches}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.__exit__(kind, error, traceback)

    def launched(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        """Show how many launches are done, and the typical step of the newest one."""
        self._done += 1
        if isinstance(outcome, LaunchFailure):
            newest = "failed"
        else:
            newest = f"{milliseconds(outcome.typical_step_s)} ms a step"
        text = f"launch {self._done} of {self._launches}: {request.case.id}: {newest}"
        self._bar.show(self._done, self._launches, text)
        if not self._bar.is_possible:
            write_line(text)
