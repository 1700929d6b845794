"""Progress of a measurement with a time budget: a live bar on a terminal, else some lines."""

from __future__ import annotations

import sys
import time
from types import TracebackType

import rich.console
import rich.progress
import typer

from ddp_perf.render.units import describe_duration

_EVERY_S = 30.0  # between two lines, if stderr is not a terminal


class BudgetProgress:
    """A bar on stderr, so that stdout contains only the result. The budget begins at once."""

    def __init__(self, budget_s: float) -> None:
        self.until = time.monotonic() + budget_s
        self._budget_s = budget_s
        self._next_line = 0.0
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            console=rich.console.Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=budget_s)

    def __enter__(self) -> BudgetProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def launched(self, launches: int) -> None:
        """Show how many launches are done."""
        now = time.monotonic()
        left_s = max(0.0, self.until - now)
        text = f"launch {launches} done, {describe_duration(left_s)} left"
        self._bar.update(self._task, completed=self._budget_s - left_s, description=text)
        if self._bar.disable and now >= self._next_line:
            typer.echo(f"ddp-perf: {text}", err=True)
            self._next_line = now + _EVERY_S
