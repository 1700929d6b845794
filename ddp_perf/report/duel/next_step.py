"""The one next command after a duel."""

from __future__ import annotations

import math
import shlex
import statistics

from ddp_perf.core.duel import DuelOutcome
from ddp_perf.core.work import Site
from ddp_perf.duel.room import FIRST_LOOK, MARGIN
from ddp_perf.duel.values import CaseDuel, Duel
from ddp_perf.render.units import counted
from ddp_perf.report.next_step import NextStep
from ddp_perf.work.changes import grows
from ddp_perf.work.text import place_text

_REVISIONS = ("tree", "revision")
_ENVIRONMENTS = ("tree", "env", "python", "packages")  # that can be swapped part by part


def after_duel(duel: Duel) -> NextStep | None:
    """Return the command that helps most, or None if nothing is left to do."""
    failed = next((case for case in duel.cases if case.failures), None)
    if failed is not None:
        side = "B" if failed.broken else "A"
        what = "compare that case alone" if duel.command is None else "run it again"
        why = f"mend what fails on side {side}, and {what}"
        return NextStep(why=why, command=_again(duel, failed))
    slower = [case for case in duel.cases if case.outcome is DuelOutcome.SLOWER]
    if slower:
        return _after_slower(duel, max(slower, key=_slowdown))
    if duel.needed_s is not None:
        why = "give the duel the time that its cases take"
        return NextStep(why=why, command=_again(duel, budget_s=duel.needed_s))
    if not duel.complete:
        return NextStep(why="the duel was interrupted; run it again", command=_again(duel))
    undecided = [case for case in duel.cases if case.outcome is DuelOutcome.UNDECIDED]
    return _after_undecided(duel, undecided) if undecided else _after_left_out(duel)


def grown_line(case: CaseDuel) -> Site | None:
    """Return the line at which side B does more: an edited one, else that of the first change."""
    if case.lines:
        return case.lines[0]
    places = (place for change in case.work or () if grows(change) for place in change.places)
    return next((place.site for place in places if place.count > 0), None)


def pairs_needed(case: CaseDuel) -> int | None:
    """Return about how many further pairs decide the case; None if no number does."""
    open_ = [
        metric.verdict
        for metric in case.metrics
        if metric.decides and metric.verdict.outcome is DuelOutcome.UNDECIDED
    ]
    more = [verdict.more_pairs for verdict in open_ if verdict.more_pairs is not None]
    return max(more) if more and len(more) == len(open_) else None


def _again(duel: Duel, *cases: CaseDuel, budget_s: float | None = None) -> str:
    """Return the command that compares the sides again: these cases, or all.

    A pytest session is always repeated as a whole: its options made the cases.
    """
    if duel.command is not None:
        budget = [] if budget_s is None else [f"--ddp-budget={math.ceil(budget_s)}s"]
        return shlex.join([*shlex.split(duel.command), *budget])
    words = ["ddp-perf", "duel", duel.a.spec, duel.b.spec]
    for case in cases:
        words += ["--case", case.id]
    if budget_s is not None:
        words += ["--budget", f"{math.ceil(budget_s / 60)}m"]
    return shlex.join([*words, *duel.repeat])


def _slowdown(case: CaseDuel) -> float:
    ratios = (one.verdict.ratio for one in case.metrics if one.decides)
    return max((ratio for ratio in ratios if ratio is not None), default=0.0)


def _after_slower(duel: Duel, case: CaseDuel) -> NextStep | None:
    """Return how to find the cause, unless the one difference of the environments is the cause."""
    a, b = duel.a, duel.b
    if a.kind in _REVISIONS and b.kind in _REVISIONS:
        return _between_revisions(duel, case)
    if not {a.kind, b.kind} <= set(_ENVIRONMENTS) or len(duel.differences) < 2:
        return None
    return NextStep(
        why="find which package or variable is to blame",
        command=shlex.join(
            ["ddp-perf", "bisect", "--good-env", a.spec, "--bad-env", b.spec, "--case", case.id]
        ),
    )


def _between_revisions(duel: Duel, case: CaseDuel) -> NextStep | None:
    a, b = duel.a, duel.b
    if a.kind == "tree":
        return None
    sides = [a.spec] if b.kind == "tree" else [a.spec, b.spec]
    line = grown_line(case)
    if line is not None:
        why = f"side B does more at {place_text(line)}; see the change"
        return NextStep(why=why, command=shlex.join(["git", "diff", *sides]))
    if case.options or a.commit == b.commit or b.changed:
        # No commit has an edit of the tree: a search would find nothing.
        return NextStep(why="see the change", command=shlex.join(["git", "diff", *sides]))
    bad = "HEAD" if b.kind == "tree" else b.spec
    return NextStep(
        why="find the commit that made it slower",
        command=shlex.join(
            ["ddp-perf", "bisect", "--good", a.spec, "--bad", bad, "--case", case.id]
        ),
    )


def _after_undecided(duel: Duel, undecided: list[CaseDuel]) -> NextStep:
    wanted = [(case, more) for case in undecided if (more := pairs_needed(case)) is not None]
    if not wanted:
        why = "no number of pairs up to a thousand decides it; see what disturbs this machine"
        return NextStep(why=why, command="ddp-perf doctor")
    seconds = sum(_seconds(case, more) for case, more in wanted)
    if duel.command is not None:
        seconds += sum(_seconds(case, 0) for case in duel.cases if case not in undecided)
    needed_s = MARGIN * seconds * _with_all_else(duel)
    budget_s = 60.0 * math.ceil(max(needed_s, duel.budget_s) / 60)
    fewest, most = (choose(more for _, more in wanted) for choose in (min, max))
    number = counted(most, "more pair") if fewest == most else f"{fewest} to {most} more pairs"
    chosen = () if len(wanted) == len(duel.cases) else tuple(case for case, _ in wanted)
    return NextStep(
        why=f"about {number} would decide {counted(len(wanted), 'case')}",
        command=_again(duel, *chosen, budget_s=budget_s),
    )


def _after_left_out(duel: Duel) -> NextStep | None:
    """Return how to compare cases that the budget had no room for: the next ones, or all."""
    rest = [one.case_id for one in duel.left_out if not one.unfit]
    if not rest or not duel.cases:
        return None
    what = counted(len(rest), "case")
    if duel.command is not None:
        all_s = duel.budget_s * (len(duel.cases) + len(rest)) / len(duel.cases)
        return NextStep(why=f"give {what} more time", command=_again(duel, budget_s=all_s))
    chosen = [word for name in rest[: len(duel.cases)] for word in ("--case", name)]
    command = [*shlex.split(_again(duel, budget_s=duel.budget_s)), *chosen]
    return NextStep(why=f"compare the first of {what} without room", command=shlex.join(command))


def _seconds(case: CaseDuel, more: int) -> float:
    """Return the time of the launches of a new duel of the case that makes so many pairs more.

    It has at least the pairs of the first look: a budget without room for them is refused.
    """
    if not case.pairs:
        return 0.0
    of_pair = statistics.median(pair.a.wall_s + pair.b.wall_s for pair in case.pairs)
    pairs = max(FIRST_LOOK, len(case.pairs) + more)
    return pairs * of_pair + sum(launch.wall_s for launch in case.aa)


def _with_all_else(duel: Duel) -> float:
    """Return how many times as long as its launches the duel took: servers start, drivers wait.

    It is 1 where only the time of the launches is known.
    """
    launches = [
        launch
        for case in duel.cases
        for launch in (*case.aa, *(one for pair in case.pairs for one in (pair.a, pair.b)))
    ]
    launched_s = sum(launch.wall_s for launch in launches)
    if not launched_s or duel.measured_s is None:
        return 1.0
    return max(1.0, duel.measured_s / launched_s)
