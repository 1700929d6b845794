"""Progress of the measurement: a live line in a terminal, plain lines in CI."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.render.units import describe_duration, milliseconds
from ddp_perf.session.measure.bench import LaunchOutcome

if TYPE_CHECKING:
    import rich.progress


class TerminalProgress:
    """A writer of progress that bypasses pytest's capture.

    A measurement runs in the set-up of an item, where pytest captures output.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._capture: Any = config.pluginmanager.getplugin("capturemanager")
        self._terminal: pytest.TerminalReporter | None = config.pluginmanager.getplugin(
            "terminalreporter"
        )
        self._quiet = config.get_verbosity() < 0
        self._bar: rich.progress.Progress | None = None
        self._suite, self._launches, self._done = "", 0, 0
        self._stack = contextlib.ExitStack()

    def begin(self, suite: str, launches: int, estimate_s: float | None) -> None:
        self._suite, self._launches, self._done = suite, launches, 0
        if self._capture is not None:
            self._stack.enter_context(self._capture.global_and_fixture_disabled())
        when = (
            "not timed before" if estimate_s is None else f"about {describe_duration(estimate_s)}"
        )
        self.say(f"{suite}: {launches} launches, {when}")
        if sys.stdout.isatty() and not self._quiet:
            import rich.progress  # slow to import, and collection does not need it

            self._bar = rich.progress.Progress(
                rich.progress.TextColumn("{task.description}"),
                rich.progress.BarColumn(),
                rich.progress.MofNCompleteColumn(),
                transient=True,
            )
            self._bar.add_task("starting", total=launches)
            self._stack.enter_context(self._bar)

    def extend(self, launches: int, why: str) -> None:
        self._launches += launches
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], total=self._launches)
        self.say(f"{self._suite}: {why}")

    def launched(
        self, request: LaunchRequest, outcome: LaunchOutcome, left_s: float | None
    ) -> None:
        self._done += 1
        left = f", {describe_duration(left_s)} left" if left_s else ""
        text = f"{request.case.id}: {_result(request, outcome)}{left}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, description=text)
        else:
            self.say(f"{self._suite} {self._done}/{self._launches} {text}")

    def how_far(self) -> str:
        """Return the progress of the newest suite, as "after 3 of 15 launches of quick"."""
        if not self._done:
            of_suite = f" of {self._suite}" if self._suite else ""
            return f"before the first launch{of_suite} ended"
        return f"after {self._done} of {self._launches} launches of {self._suite}"

    def end(self) -> None:
        self._stack.close()
        self._bar = None

    def warn(self, line: str) -> None:
        """Write one plain line, even with -q: the reason for a wait."""
        self.say(line, always=True)

    def say(self, line: str, *, always: bool = False) -> None:
        """Write one plain line, unless pytest runs with -q."""
        if self._terminal is not None and (always or not self._quiet):
            capture = self._capture
            shown = capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
            with shown:
                begin = "\n" if self._done == 0 else ""
                self._terminal.write(f"{begin}ddp: {line}\n", flush=True)


def _result(request: LaunchRequest, outcome: LaunchOutcome) -> str:
    if isinstance(outcome, LaunchFailure):
        return f"FAILED: {outcome.detail}"
    text = f"{milliseconds(outcome.typical_step_s)} ms a step"
    steps = len(outcome.step_s)
    schedule = request.case.schedule
    more = f" ({steps} steps, until {schedule.enough_clean} were clean)"
    return f"{text}{more * (steps > schedule.measured)}"
