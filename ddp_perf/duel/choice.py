"""The cases of a duel that nobody named: the most telling ones that its budget has room for.

How long a case takes is known by stored sessions, or assumed.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case, Tier
from ddp_perf.duel.cases import MatchedCases
from ddp_perf.duel.room import FIRST_LOOK
from ddp_perf.duel.values import MissingSide, SideCase
from ddp_perf.render.units import counted, describe_duration
from ddp_perf.session.measure.nights import most_telling_first
from ddp_perf.session.measure.rounds import expected_launch_s, stored_baseline
from ddp_perf.stats.duel.yardstick import CALIBRATION_LAUNCHES
from ddp_perf.system.capacity import Capacity

_LAUNCHES = CALIBRATION_LAUNCHES + 2 * FIRST_LOOK  # of a case, up to its first look
# Of a duel whose budget nobody stated. On GPUs a launch is assumed to take 11 s, so that 3 minutes
# have no room for one case.
_DEFAULT_S: dict[Tier, float] = {"cpu": 180.0, "gpu": 600.0}


def default_budget_s(matched: MatchedCases) -> float:
    """Return the seconds of a duel of these cases if nobody states them, by their tier."""
    return _DEFAULT_S[matched.cases[0].b.tier]


def choose_cases(
    matched: MatchedCases,
    *,
    budget_s: float,
    launch_s: Callable[[Case], float],
    fits: Callable[[Case], bool],
) -> MatchedCases:
    """Return the cases that the budget has room for, at least one; the others are left out.

    ``launch_s`` is what a launch of a case is expected to take. What this machine cannot run is
    left out, too, instead of missing.
    """
    sides = {one.b.key: one for one in matched.cases}
    telling = most_telling_first([one.b for one in matched.cases], fits)
    order = [sides[case.key] for case in telling]
    spent_s, chosen = 0.0, list[SideCase]()
    for case in order:
        spent_s += _LAUNCHES * launch_s(case.b)
        if chosen and spent_s > budget_s:
            break
        chosen.append(case)
    ids = {case.id for case in chosen}
    reason = f"the budget of {describe_duration(budget_s)} has no room for it"
    return msgspec.structs.replace(
        matched,
        cases=tuple(case for case in matched.cases if case.id in ids),
        missing=tuple(one for one in matched.missing if not one.unfit),
        left_out=(
            *(MissingSide(case_id=c.id, reason=reason) for c in order if c.id not in ids),
            *(one for one in matched.missing if one.unfit),
        ),
        spare=tuple(case.id for case in reversed(chosen)),
    )


def stored_launch_s(store: BaselineStore, capacity: Capacity) -> Callable[[Case], float]:
    """Return what a launch of a case takes by this machine's stored sessions, or is assumed to."""
    baselines: dict[Tier, Baseline] = {}

    def seconds(case: Case) -> float:
        if case.tier not in baselines:
            baselines[case.tier] = stored_baseline(store, capacity, case.tier)
        return expected_launch_s(case, baselines[case.tier])

    return seconds


def choice_text(matched: MatchedCases, budget_s: float) -> str | None:
    """Return which cases were chosen, and why; None if none was left out for want of time."""
    unchosen = [one for one in matched.left_out if not one.unfit]
    if not unchosen:
        return None
    names = ", ".join(reversed(matched.spare))
    return (
        f"{describe_duration(budget_s)} have room for {len(matched.cases)} of"
        f" {counted(len(matched.cases) + len(unchosen), 'case')}, by the launches that are stored,"
        " or else assumed. Chosen from the core of the suites, one of each before a second:"
        f" {names}"
    )
