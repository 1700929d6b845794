"""Progress of a measurement with a time budget: a live bar on a terminal, else some lines."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType

import typer

from ddp_perf.core.duel import DuelOutcome
from ddp_perf.duel.values import Duel
from ddp_perf.render.live_bar import LiveBar
from ddp_perf.render.units import counted, describe_duration

_EVERY_S = 60.0  # between two lines, if stderr is not a terminal


def write_line(line: str) -> None:
    """Write a line on stderr, so that stdout contains only the result."""
    typer.echo(f"ddp-perf: {line}", err=True)


class BudgetProgress:
    """A bar on stderr, so that stdout contains only the result. The budget begins at once."""

    def __init__(self, budget_s: float) -> None:
        self.until = time.monotonic() + budget_s
        self._budget_s = budget_s
        self._next_line = 0.0
        self._bar = LiveBar(sys.stderr)

    def __enter__(self) -> BudgetProgress:
        self._bar.__enter__()
        self._bar.show(0, self._budget_s, f"{describe_duration(self._budget_s)} left")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.__exit__(kind, error, traceback)

    def launched(self, launches: int) -> None:
        """Show how many launches are done."""
        self.show(f"launch {launches} done")

    def show(self, done: str) -> None:
        """Show what is done, and the time that is left."""
        now = time.monotonic()
        left_s = max(0.0, self.until - now)
        text = f"{done}, {describe_duration(left_s)} left"
        self._bar.show(self._budget_s - left_s, self._budget_s, text)
        if not self._bar.is_possible and now >= self._next_line:
            write_line(text)
            self._next_line = now + _EVERY_S


def describe_progress(duel: Duel) -> str:
    """Return how many pairs are done, and the outcomes so far."""
    pairs = sum(len(case.pairs) for case in duel.cases)
    decided = Counter(case.outcome for case in duel.cases)
    undecided = decided.pop(DuelOutcome.UNDECIDED, 0)
    parts = [f"{number} {outcome.value}" for outcome, number in sorted(decided.items())]
    if undecided:
        parts.append(f"{undecided} undecided")
    launches = sum(len(case.aa) for case in duel.cases)
    done = counted(pairs, "pair") if pairs else f"calibration, {counted(launches, 'launch')}"
    return f"{done}: {', '.join(parts)}"
