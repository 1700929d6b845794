"""Which terms of a step changed, by how much, and how sure that is.

A term of tonight is the median over the launches, and of the baseline the median over its
nights. The standard error of their difference takes in how launches differ and, from three
nights on, how nights do; the spread is told by the median absolute deviation, since a launch
that was disturbed must not hide what all others show.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.core.baseline import LEAST_NIGHTS
from ddp_perf.core.explanation import TermChange

Row = Mapping[str, float]  # one launch: seconds by term

# Terms that one cause moves together.
GROUPS: dict[str, tuple[str, ...]] = {
    "compute": ("forward", "backward", "optimizer"),
    "communication": ("exposed", "interference"),
    "imbalance": ("imbalance",),
    "data": ("data",),
    "idle": ("idle",),
}
UNEXPLAINED = "unexplained"  # of the timed steps: what the probe of the same launch did not see
_SD_PER_MAD = 1.4826
_ERROR_OF_MEDIAN = 1.2533  # ÷ that of the mean, of a normal law: √(π ÷ 2)
_SHARE = 0.1  # of the step's change: less is no cause of it


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """How the change of a step's time is made up. Seconds."""

    step: TermChange
    groups: tuple[TermChange, ...]  # that certainly changed, the largest change first
    terms: tuple[TermChange, ...]  # each single one, changed or not


def attribute(now: Sequence[Row], nights: Sequence[Sequence[Row]]) -> Attribution | None:
    """``now``, and each of ``nights``: a row for each launch, with ``step`` beside the terms.

    None where either holds nothing.
    """
    step = change_of("step", now, nights)
    if step is None:
        return None
    rows = [_with_groups(row) for row in now]
    before = [[_with_groups(row) for row in night] for night in nights]
    groups = [change_of(name, rows, before) for name in (*GROUPS, UNEXPLAINED)]
    terms = [change_of(term, now, nights) for members in GROUPS.values() for term in members]
    enough = _SHARE * abs(step.change_s)
    changed = [g for g in groups if g and g.is_certain and abs(g.change_s) >= enough]
    return Attribution(
        step=step,
        groups=tuple(sorted(changed, key=lambda group: abs(group.change_s), reverse=True)),
        terms=tuple(term for term in terms if term),
    )


def change_of(name: str, now: Sequence[Row], nights: Sequence[Sequence[Row]]) -> TermChange | None:
    """Of one figure of the rows; None where a side lacks it."""
    tonight = [row[name] for row in now if name in row]
    before = [[row[name] for row in night if name in row] for night in nights]
    before = [night for night in before if night]
    if not tonight or not before:
        return None
    levels = [statistics.median(night) for night in before]
    return TermChange(
        name=name,
        before_s=statistics.median(levels),
        after_s=statistics.median(tonight),
        error_s=_error_s(tonight, before, levels),
    )


def _with_groups(row: Row) -> Row:
    groups = {name: sum(row[term] for term in terms) for name, terms in GROUPS.items()}
    return {**groups, UNEXPLAINED: row["step"] - sum(groups.values())}


def _error_s(
    tonight: Sequence[float], before: Sequence[Sequence[float]], levels: Sequence[float]
) -> float | None:
    """Of the difference of the medians; None: one launch tells nothing of its spread."""
    centred = [
        value - statistics.median(launches) for launches in (tonight, *before) for value in launches
    ]
    if len(tonight) < 2:
        return None
    launch_sd = _SD_PER_MAD * statistics.median(map(abs, centred))
    launches = sum(map(len, before))
    variance = (_ERROR_OF_MEDIAN * launch_sd) ** 2 * (1 / len(tonight) + 1 / launches)
    if len(levels) >= LEAST_NIGHTS:
        centre = statistics.median(levels)
        night_sd = _SD_PER_MAD * statistics.median(abs(one - centre) for one in levels)
        variance += night_sd**2 * (1 + 1 / len(levels))
    return math.sqrt(variance)
