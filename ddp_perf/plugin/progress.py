"""Progress of the measurement: a live line on a terminal, a line for each case in a log."""

from __future__ import annotations

import collections
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.render.units import counted, describe_duration, milliseconds
from ddp_perf.session.measure.rounds import LaunchOutcome, Pending

if TYPE_CHECKING:
    from ddp_perf.render.tables import LiveBar

_SILENCE_S = 60.0  # then a log gets a line: some CI systems end a job that writes nothing


class TerminalProgress:
    """A writer of progress that bypasses pytest's capture.

    A measurement runs in the set-up of an item, where pytest captures output.
    """

    def __init__(self, config: pytest.Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._capture: Any = config.pluginmanager.getplugin("capturemanager")
        self._terminal: pytest.TerminalReporter | None = config.pluginmanager.getplugin(
            "terminalreporter"
        )
        self._quiet = config.get_verbosity() < 0
        self._clock = clock
        self._written = clock()  # when the newest line was
        self._before = "\n"  # a line of ours: pytest has written the results of tests
        self._suite, self._pending = "", Pending({})
        self._step_s: dict[str, list[float]] = {}  # of each launch, by case id
        self._bar: LiveBar | None = None
        self._stack = contextlib.ExitStack()

    def begin(
        self, suite: str, plan: Sequence[LaunchRequest], expected_s: Mapping[str, float]
    ) -> None:
        self._suite, self._pending = suite, Pending(expected_s)
        self._step_s = collections.defaultdict(list)
        self._pending.add(plan)
        if self._capture is not None:
            self._stack.enter_context(self._capture.global_and_fixture_disabled())
        when = self._left("about {}") or "for how long a stored session will show"
        self.say(f"{suite}: {counted(len(plan), 'launch')}, {when}")
        if sys.stdout.isatty() and not self._quiet:
            from ddp_perf.render.tables import LiveBar  # rich is slow, and collection needs none

            bar = self._stack.enter_context(LiveBar(sys.stdout))
            self._bar = bar if bar.is_possible else None
            self._draw()

    def extend(self, plan: Sequence[LaunchRequest], why: str, *, judged: bool) -> None:
        self._pending.add(plan)
        if not judged:
            self._step_s.clear()  # the line of a case has what was judged, or what was not
        self.say(f"{self._suite}: {why}{self._left(', about {}')}")
        self._draw()

    def launched(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        case_id = request.case.id
        self._pending.finish(request, outcome)
        if isinstance(outcome, LaunchFailure):
            self.say(f"FAILED: {outcome}{self._left()}")
            self._draw()
            return
        self._step_s[case_id].append(outcome.typical_step_s)
        if self._bar is not None:
            self._draw(f", {case_id}: {milliseconds(outcome.typical_step_s)} ms a step")
        elif not self._pending.includes(case_id):
            self.say(f"{case_id}: {_steps_text(self._step_s[case_id])}{self._left()}")
        elif self._clock() - self._written >= _SILENCE_S:
            self.say(f"{self._suite}: {self._so_far()}{self._left()}")

    def how_far(self) -> str:
        """Return the progress of the newest suite, as "after 3 of 15 launches of quick"."""
        if not self._pending.done:
            of_suite = f" of {self._suite}" if self._suite else ""
            return f"before the first launch{of_suite} ended"
        return f"after {self._so_far()} of {self._suite}"

    def end(self) -> None:
        self._stack.close()
        self._bar = None
        self._before = "\n"

    def warn(self, line: str) -> None:
        """Write one plain line, even with -q: the reason for a wait."""
        self.say(line, always=True)

    def say(self, line: str, *, always: bool = False) -> None:
        """Write one plain line, unless pytest runs with -q."""
        if self._terminal is None or (self._quiet and not always):
            return
        capture = self._capture
        shown = capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
        hidden = self._bar.hidden() if self._bar else contextlib.nullcontext()
        with shown, hidden:
            self._terminal.write(f"{self._before}ddp: {line}\n", flush=True)
        self._before = ""
        self._written = self._clock()

    def _draw(self, newest: str = "") -> None:
        if self._bar is not None:
            pending = self._pending
            text = f"{pending.done}/{pending.total}{self._left()}{newest}"
            self._bar.show(pending.done, pending.total, text)

    def _so_far(self) -> str:
        return f"{self._pending.done} of {counted(self._pending.total, 'launch')}"

    def _left(self, form: str = ", about {} left") -> str:
        """Return the time of the pending launches in this form; "" if there is none to show."""
        left_s = self._pending.left_s
        return form.format(describe_duration(max(1.0, left_s))) if left_s else ""


def _steps_text(step_s: Sequence[float]) -> str:
    """Return the typical step of a case, and its range over launches."""
    low, high = milliseconds(min(step_s)), milliseconds(max(step_s))
    launches = counted(len(step_s), "launch")
    over = f"in {launches}" if low == high else f"{low} to {high} in {launches}"
    return f"{milliseconds(statistics.median(step_s))} ms a step ({over})"
