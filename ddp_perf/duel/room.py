"""The room that a time budget has for the pairs of a duel."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ddp_perf.duel.case_run import CaseRun
from ddp_perf.errors import BudgetError
from ddp_perf.render.units import counted, describe_duration
from ddp_perf.stats.duel.pair_plan import plan_pair_looks
from ddp_perf.stats.duel.yardstick import CALIBRATION_LAUNCHES

FIRST_LOOK = plan_pair_looks(1000)[0]  # pairs before the first verdict
MARGIN = 1.2  # of a suggested budget: launches do not all take equally long


def one_to_leave_out(
    runs: Sequence[CaseRun], spare: Sequence[str], *, budget_s: float, spent_s: float
) -> str | None:
    """Return the id of a spare case to leave out, so that the others have room; None if all have.

    It is one that has no room by itself, or else the first one. The last case is not left out.
    """
    rest = {run.id: rest_s(run) for run in runs if run.is_open}
    left_s = budget_s - spent_s
    candidates = [name for name in spare if name in rest]
    if len(rest) < 2 or not candidates or sum(rest.values()) <= left_s:
        return None
    return next((name for name in candidates if rest[name] > left_s), candidates[0])


def has_room_for_pairs(run: CaseRun, *, budget_s: float, spent_s: float) -> bool:
    """Return whether there is room for the calibration and two pairs, which are fewer than a look.

    True also before its first launch.
    """
    calibration_s = (CALIBRATION_LAUNCHES - len(run.duel.aa)) * (run.launch_s or 0.0)
    return spent_s + calibration_s + 2 * run.pair_s <= budget_s


def check_room(runs: Sequence[CaseRun], *, budget_s: float, spent_s: float) -> None:
    """Raise BudgetError if the calibration and the first look at all cases take too long.

    It names the budget, or how many cases, that would do. A case that was not launched yet takes no
    time here, so that the error is raised as soon as it is certain.
    """
    rest = {run.id: rest_s(run) for run in runs if run.is_open}
    known = [seconds for seconds in rest.values() if seconds]
    if not known or spent_s + sum(known) <= budget_s:
        return
    need = spent_s + len(rest) * sum(known) / len(known)
    needed_s = _suggested(need)
    text = (
        f"the budget of {describe_duration(budget_s)} has no room for the calibration and"
        f" {FIRST_LOOK} pairs of {counted(len(rest), 'case')}, which take about"
        f" {describe_duration(need)}: raise it to {needed_s:g}s"
    )
    cheapest = min((name for name in rest if rest[name]), key=rest.__getitem__)
    if len(rest) > 1 and spent_s + rest[cheapest] <= budget_s:
        text += f", or compare fewer cases, such as {cheapest}"
    raise BudgetError(text, needed_s=needed_s)


def rest_s(run: CaseRun) -> float:
    """Return the seconds that a case takes up to its first look; 0 before its first launch."""
    if run.launch_s is None:
        return 0.0
    return (CALIBRATION_LAUNCHES - len(run.duel.aa)) * run.launch_s + FIRST_LOOK * run.pair_s


def most_pairs(run: CaseRun, runs: Sequence[CaseRun], left_s: float) -> int:
    """Return the number of pairs of a case that there is room for.

    All others are taken to be decided at the first look, as most are: a plan of too many pairs
    costs a duel little that ends before them, and one of too few leaves the rest of its time.
    """
    others = sum(FIRST_LOOK * other.pair_s for other in runs if other.is_open and other is not run)
    return max(FIRST_LOOK, int((left_s - others) / run.pair_s)) if run.pair_s else FIRST_LOOK


def _suggested(seconds: float) -> float:
    return 30.0 * math.ceil(MARGIN * seconds / 30)
