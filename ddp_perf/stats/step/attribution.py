"""Which terms of a step changed, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.core.decomposition import LAG, TERMS
from ddp_perf.core.explanation import Delta
from ddp_perf.stats.step.term_change import Row, figure_of, spread_of_sessions

# Terms that one cause moves together. No figure beside them has such a name.
GROUPS: dict[str, tuple[str, ...]] = {
    "compute": ("forward", "backward", "optimizer"),
    "unhidden": ("exposed", "interference"),
    "imbalance": ("imbalance",),
    "data": ("data",),
    "idle": ("idle",),
}
UNEXPLAINED = "unexplained"  # of the timed steps: what the probe of the same launch did not see
_ALL_GROUPS = (*GROUPS, UNEXPLAINED)
# A steadier figure that shows, where a side's rows hold it, that a group changed the same way.
_WITNESSES = {"imbalance": LAG}
_LEVEL = 0.05 / len(_ALL_GROUPS)  # of chance, for each group: in one of twenty cases any
_LEAST = 2  # launches, of which a spread can be told
_HALF = 0.5
_SHARE = 0.1  # of the step's change: less is no cause of it


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """How the change of a step's time is made up. Seconds."""

    step: Delta
    # That matter, and changed beyond chance, or by what else shows it; the largest change first.
    groups: tuple[Delta, ...]
    # Where those leave most of the step's change open, the largest other one, if it is as large:
    # the step did change, so something must have.
    likely: Delta | None
    terms: tuple[Delta, ...]  # each single one, changed or not
    beside: dict[str, Delta]  # other figures of the rows, changed or not


def attribute(
    now: Sequence[Row],
    sessions: Sequence[Sequence[Row]],
    *,
    beside: Sequence[str] = (),
    known: Sequence[str] = (),
) -> Attribution | None:
    """``now``, and each of ``sessions``: a row for each launch, with ``step`` beside the terms.

    ``beside``: names of further figures; those that a side lacks are left out. ``known``: groups
    that something else shows to have grown, as a count does: only by how much is uncertain.

    None with fewer than two rows now, or none before: nothing would tell how rows differ.
    """
    sessions = [session for session in sessions if session]
    if len(now) < _LEAST or not sessions:
        return None
    rows, before = _with_groups(now), [_with_groups(session) for session in sessions]
    names = dict.fromkeys(("step", *TERMS, *_ALL_GROUPS, *beside))
    figures = {
        name: figure for name in names if (figure := figure_of(name, rows, before)) is not None
    }
    shared = spread_of_sessions([figures[name] for name in _ALL_GROUPS])
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
    left = step_s - sum(group.change for group in shown)
    others = [group for group in groups if group not in shown]
    largest = max(others, key=lambda group: group.change, default=None)
    enough = _HALF * step_s
    return largest if largest and left > enough and largest.change > enough > 0 else None


def _witnessed(group: Delta, changes: Mapping[str, Delta]) -> bool:
    """Another figure certainly changed the same way, and by half as much at least."""
    witness = changes.get(_WITNESSES.get(group.name, ""))
    if witness is None or not witness.is_certain or witness.change * group.change <= 0:
        return False
    return abs(witness.change) >= _HALF * abs(group.change)


def _with_groups(rows: Sequence[Row]) -> list[Row]:
    def extended(row: Row) -> Row:
        groups = {name: sum(row[term] for term in terms) for name, terms in GROUPS.items()}
        return {**row, **groups, UNEXPLAINED: row["step"] - sum(groups.values())}

    return [extended(row) for row in rows]
