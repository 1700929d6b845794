"""The attribution of a step's change to its terms, with its uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.core.decomposition import LAG, TERMS
from ddp_perf.core.explanation import Delta
from ddp_perf.stats.step_change import Row, figure_of, spread_of_sessions

# Terms that one cause changes together. No figure beside them has such a name.
GROUPS: dict[str, tuple[str, ...]] = {
    "compute": ("forward", "backward", "optimizer"),
    "unhidden": ("exposed", "interference"),
    "imbalance": ("imbalance",),
    "data": ("data",),
    "idle": ("idle",),
}
UNEXPLAINED = "unexplained"  # part of the timed steps that the probe of the launch did not measure
_ALL_GROUPS = (*GROUPS, UNEXPLAINED)
# A steadier figure that confirms a group's change, if the rows of both sides have it.
_WITNESSES = {"imbalance": LAG}
_LEVEL = 0.05 / len(_ALL_GROUPS)  # significance level of each group; 5 % for all of them
_LEAST = 2  # launches: fewer have no spread
_HALF = 0.5
_SHARE = 0.1  # of the step's change: a smaller group is no cause of it


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a step's time, divided over groups of terms, in seconds."""

    step: Delta
    # Groups that matter and changed significantly, or by other evidence; the largest change first.
    groups: tuple[Delta, ...]
    # If those leave most of the step's change unexplained, the largest other group, if it is
    # large enough: the step did change, so some group must have changed.
    likely: Delta | None
    terms: tuple[Delta, ...]  # every single term, changed or not
    beside: dict[str, Delta]  # other figures of the rows, changed or not


def attribute(
    now: Sequence[Row],
    sessions: Sequence[Sequence[Row]],
    *,
    beside: Sequence[str] = (),
    known: Sequence[str] = (),
    in_alternation: bool = False,
) -> Attribution | None:
    """Divide the change of the step since earlier sessions over groups of terms.

    ``now``, and each of ``sessions``, has a row for each launch, with ``step`` beside the terms.
    ``beside`` names further figures; those that one side lacks are left out. ``known`` are groups
    that something else, such as a count, has shown to grow: only the size of their change is
    uncertain. ``in_alternation``: all launches are of one time, so that sessions differ by their
    launches alone.

    Returns None with fewer than two rows now, or none before: how rows differ is then unknown.
    """
    sessions = [session for session in sessions if session]
    if len(now) < _LEAST or not sessions:
        return None
    rows, before = _with_groups(now), [_with_groups(session) for session in sessions]
    names = dict.fromkeys(("step", *TERMS, *_ALL_GROUPS, *beside))
    figures = {
        name: figure for name in names if (figure := figure_of(name, rows, before)) is not None
    }
    shared = spread_of_sessions(
        [figures[name] for name in _ALL_GROUPS], in_alternation=in_alternation
    )
    changes = {name: shared.change(name, figure, _LEVEL) for name, figure in figures.items()}
    step_s = changes["step"].change
    groups = [changes[name] for name in _ALL_GROUPS]
    shown = [
        group
        for group in groups
        if abs(group.change) >= _SHARE * abs(step_s)
        and (
            group.is_certain
            or (group.name in known and group.change > 0)
            or _witnessed(group, changes)
        )
    ]
    return Attribution(
        step=changes["step"],
        groups=tuple(sorted(shown, key=lambda group: abs(group.change), reverse=True)),
        likely=_likely(step_s, groups, shown),
        terms=tuple(changes[term] for term in TERMS),
        beside={name: changes[name] for name in beside if name in changes},
    )


def _likely(step_s: float, groups: Sequence[Delta], shown: Sequence[Delta]) -> Delta | None:
    """Return the largest other group if the shown ones leave most of the step's change unexplained.

    It must account for more than half of the step's change.
    """
    left = step_s - sum(group.change for group in shown)
    others = [group for group in groups if group not in shown]
    largest = max(others, key=lambda group: group.change, default=None)
    enough = _HALF * step_s
    return largest if largest and left > enough and largest.change > enough > 0 else None


def _witnessed(group: Delta, changes: Mapping[str, Delta]) -> bool:
    """Return whether a steadier figure certainly changed the same way, by half as much at least."""
    witness = changes.get(_WITNESSES.get(group.name, ""))
    if witness is None or not witness.is_certain or witness.change * group.change <= 0:
        return False
    return abs(witness.change) >= _HALF * abs(group.change)


def _with_groups(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the sum of each group, and the part of the step outside them."""

    def extended(row: Row) -> Row:
        groups = {name: sum(row[term] for term in terms) for name, terms in GROUPS.items()}
        return {**row, **groups, UNEXPLAINED: row["step"] - sum(groups.values())}

    return [extended(row) for row in rows]
