"""The next command after a duel."""

from __future__ import annotations

import math
import shlex
import statistics

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.run import FIRST_LOOK, MARGIN
from ddp_perf.duel.values import CaseDuel, Duel
from ddp_perf.render.model import NextStep
from ddp_perf.render.units import counted
from ddp_perf.report.next_steps.rules import DOCTOR, SEE_DISTURBANCE, Rule, bisect, first
from ddp_perf.work.changes import grows
from ddp_perf.work.values import WorkChange

_REVISIONS = ("tree", "revision")
_ENVIRONMENTS = ("tree", "env", "python", "packages")  # that can be swapped part by part


def after_duel(duel: Duel) -> NextStep | None:
    """Return the command that helps most, or None if nothing is left to do."""
    return first(DUEL, [duel])


# The cases that need a command.


def _failed(duel: Duel) -> list[CaseDuel]:
    return [case for case in duel.cases if case.failures]


def _slower(duel: Duel) -> list[CaseDuel]:
    """Return the cases that are slower, the slowest one first."""
    slower = [case for case in duel.cases if case.outcome is DuelOutcome.SLOWER]
    return sorted(slower, key=_slowdown, reverse=True)


def _slowdown(case: CaseDuel) -> float:
    ratios = (one.verdict.ratio for one in case.metrics if one.decides)
    return max((ratio for ratio in ratios if ratio is not None), default=0.0)


def _slower_revision(duel: Duel) -> list[CaseDuel]:
    """Return the slower cases, if a commit or an edit of the tree may be the cause."""
    are_revisions = duel.a.kind == "revision" and duel.b.kind in _REVISIONS
    return _slower(duel) if are_revisions else []


def _slower_environment(duel: Duel) -> list[CaseDuel]:
    """Return the slower cases, unless the one difference of the environments is the cause."""
    kinds = {duel.a.kind, duel.b.kind}
    can_swap = kinds <= set(_ENVIRONMENTS) and kinds != {"tree"}
    return _slower(duel) if can_swap and len(duel.differences) > 1 else []


def _is_shown_by_diff(duel: Duel) -> bool:
    """Return whether the slowest case has a line that does more, or an edit that no commit has."""
    uncommitted = duel.a.commit == duel.b.commit or duel.b.changed
    return any(
        uncommitted or case.options or case.lines or any(map(_has_place, case.work or ()))
        for case in _slower_revision(duel)[:1]
    )


def _has_place(change: WorkChange) -> bool:
    return grows(change) and any(place.count > 0 for place in change.places)


def _undecided(duel: Duel) -> list[CaseDuel]:
    return [case for case in duel.cases if case.outcome is DuelOutcome.UNDECIDED]


def _decidable(duel: Duel) -> list[tuple[CaseDuel, int]]:
    """Return the undecided cases that further pairs decide, each with about their number."""
    found = []
    for case in _undecided(duel):
        more = [
            one.verdict.more_pairs
            for one in case.metrics
            if one.decides and one.verdict.outcome is DuelOutcome.UNDECIDED
        ]
        known = [pairs for pairs in more if pairs is not None]
        if known and len(known) == len(more):
            found.append((case, max(known)))
    return found


def _left_out(duel: Duel) -> list[str]:
    """Return the cases that the budget had no room for beside those that it had."""
    return [one.case_id for one in duel.left_out if not one.unfit and duel.cases]


# Words and commands.


def _again(duel: Duel, *cases: str, budget_s: float | None = None) -> str:
    """Return the command that compares the sides again: these cases, or all.

    A pytest session is always repeated as a whole: its options made the cases.
    """
    if duel.command is not None:
        budget = [] if budget_s is None else [f"--ddp-budget={math.ceil(budget_s)}s"]
        return shlex.join([*shlex.split(duel.command), *budget])
    words = ["ddp-perf", "duel", duel.a.spec, duel.b.spec]
    for case in cases:
        words += ["--case", case]
    if budget_s is not None:
        words += ["--budget", f"{math.ceil(budget_s / 60)}m"]
    return shlex.join([*words, *duel.repeat])


def _diff(duel: Duel) -> str:
    sides = [duel.a.spec] if duel.b.kind == "tree" else [duel.a.spec, duel.b.spec]
    return shlex.join(["git", "diff", *sides])


def _bisect_commits(duel: Duel) -> str:
    bad = "HEAD" if duel.b.kind == "tree" else duel.b.spec
    return _bisect(duel, duel.a.spec, bad)


def _bisect(duel: Duel, good: str, bad: str, *, kind: str = "") -> str:
    """Return the search of the first slower case, which emulation may have made."""
    made_by = [word for word in duel.repeat if word.startswith(("--emulate=", "--network="))]
    return bisect(good, bad, _slower(duel)[0].id, *made_by, kind=kind)


def _number_of_pairs(duel: Duel) -> str:
    wanted = _decidable(duel)
    fewest, most = (choose(more for _, more in wanted) for choose in (min, max))
    number = counted(most, "more pair") if fewest == most else f"{fewest} to {most} more pairs"
    return f"about {number} would decide {counted(len(wanted), 'case')}"


def _with_more_pairs(duel: Duel) -> str:
    wanted = _decidable(duel)
    seconds = sum(_seconds(case, more) for case, more in wanted)
    if duel.command is not None:
        decided = (case for case in duel.cases if case not in _undecided(duel))
        seconds += sum(_seconds(case, 0) for case in decided)
    needed_s = max(MARGIN * seconds * _with_all_else(duel), duel.budget_s)
    chosen = () if len(wanted) == len(duel.cases) else (case.id for case, _ in wanted)
    return _again(duel, *chosen, budget_s=60.0 * math.ceil(needed_s / 60))


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


def _compare_left_out(duel: Duel) -> str:
    """Return how to compare the next cases, or all of a session of pytest."""
    rest = _left_out(duel)
    times = 1 if duel.command is None else 1 + len(rest) / len(duel.cases)
    return _again(duel, *rest[: len(duel.cases)], budget_s=duel.budget_s * times)


DUEL: tuple[Rule[Duel], ...] = (
    (
        _failed,
        "fix what fails, and compare that case again",
        lambda duel: _again(duel, _failed(duel)[0].id),
    ),
    (_is_shown_by_diff, "see what changed", _diff),
    (_slower_revision, "find the commit that made it slower", _bisect_commits),
    (
        _slower_environment,
        "find which package or variable is to blame",
        lambda duel: _bisect(duel, duel.a.spec, duel.b.spec, kind="-env"),
    ),
    (
        lambda duel: duel.needed_s,
        "give the duel the time that its cases take",
        lambda duel: _again(duel, budget_s=duel.needed_s),
    ),
    (lambda duel: not duel.complete, "the duel was interrupted; run it again", _again),
    (_decidable, _number_of_pairs, _with_more_pairs),
    (_undecided, f"no number of pairs up to a thousand decides it; {SEE_DISTURBANCE}", DOCTOR),
    (_left_out, "compare the next cases that had no room", _compare_left_out),
)
