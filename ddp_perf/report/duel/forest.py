"""The intervals of a duel in characters, a line for each case: a comment shows no image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ddp_perf.duel.values import MetricDuel
from ddp_perf.render.units import counted, percent_change
from ddp_perf.report.duel.rows import DuelRow

MOST_CASES = 8
_NAME, _PLOT, _CHANGE = 20, 31, 9  # columns; the verdict after them takes at most 10
_REACH = 6.0  # tolerances from 0 that an axis goes at most: beyond it an interval is cut
_LEAST = 1.6  # and at least


def forest(rows: Sequence[DuelRow], names: dict[str, str], page: str) -> str:
    """Return the interval of each case on its step, the cases in the order of ``rows``.

    ``0`` and both tolerances are marked. An interval that goes on beyond the axis has an arrow.
    """
    shown = [(names[row.case], one) for row in rows for one in row.shown[:1] if _drawn(one)]
    if not shown:
        return ""
    axis = _Axis([one for _, one in shown[:MOST_CASES]])
    lines = [f"{'':{_NAME}} {axis.head()}", *(_line(name, one, axis) for name, one in shown)]
    if more := len(shown) - MOST_CASES:
        lines[1 + MOST_CASES :] = [f"and {counted(more, 'more case')}: see {page}"] * (more > 0)
    return "\n".join(line.rstrip() for line in lines)


def _drawn(one: MetricDuel) -> bool:
    return one.verdict.interval is not None and one.verdict.ratio is not None


def _line(name: str, one: MetricDuel, axis: _Axis) -> str:
    cut = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    change = percent_change(one.verdict.ratio or 1.0)
    outcome = one.verdict.outcome.value
    return f"{cut:{_NAME}} {axis.drawn(one)}{change:>{_CHANGE}} {outcome}"


class _Axis:
    """The columns of changes from ``low`` to ``high``, which are fractions."""

    def __init__(self, shown: Sequence[MetricDuel]) -> None:
        self.tolerance = max(one.tolerance for one in shown)
        ends = [end - 1 for one in shown for end in one.verdict.interval or ()]
        least, most = _LEAST * self.tolerance, _REACH * self.tolerance
        self._low = max(min([*ends, -least]), -most)
        self._high = min(max([*ends, least]), most)

    def _column(self, change: float) -> int:
        share = (change - self._low) / (self._high - self._low)
        return min(max(math.floor(share * (_PLOT - 1) + 0.5), -1), _PLOT)

    def head(self) -> str:
        """Return the labels of 0 and of the tolerances; theirs begin or end at their marks."""
        text = [" "] * (_PLOT + _CHANGE)
        tolerance = f"{100 * self.tolerance:.3g} %"
        below, above = self._column(-self.tolerance), self._column(self.tolerance)
        starts = (max(below - len(tolerance), 0), self._column(0.0), above)
        for start, label in zip(starts, (f"-{tolerance}", "0", f"+{tolerance}"), strict=True):
            text[start : start + len(label)] = label
        return "".join(text)

    def drawn(self, one: MetricDuel) -> str:
        """Return an interval with its middle, over the marks."""
        cells = [" "] * _PLOT
        for change, mark in ((-one.tolerance, ":"), (one.tolerance, ":"), (0.0, "│")):
            if 0 <= (at := self._column(change)) < _PLOT:
                cells[at] = mark
        low, high = (self._column(end - 1) for end in one.verdict.interval or (1.0, 1.0))
        for at in range(max(low, 0), min(high + 1, _PLOT)):
            cells[at] = "─"
        for at, mark in self._marks(low, high, one):
            cells[min(max(at, 0), _PLOT - 1)] = mark
        return "".join(cells)

    def _marks(self, low: int, high: int, one: MetricDuel) -> Iterator[tuple[int, str]]:
        yield low, "├" if low >= 0 else "◄"
        yield high, "┤" if high < _PLOT else "►"
        middle = self._column((one.verdict.ratio or 1.0) - 1)
        if 0 <= middle < _PLOT:
            yield middle, "●"
