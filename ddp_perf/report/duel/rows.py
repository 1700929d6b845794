"""One row for each case of a duel, and the one next command after it."""

from __future__ import annotations

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Sequence

import msgspec

from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.metric import CPU_TIME, STEP_TIME
from ddp_perf.core.verdict import Delta, DuelOutcome, Explanation
from ddp_perf.core.work import Site
from ddp_perf.duel.case_run import figures_of, summaries_of_aa
from ddp_perf.duel.run import FIRST_LOOK, MARGIN
from ddp_perf.duel.values import (
    CaseDuel,
    Duel,
    MetricDuel,
    MissingSide,
    PowerEstimate,
    Side,
    SideConditions,
    SideFailure,
    SideName,
)
from ddp_perf.render.model import NextStep, Status
from ddp_perf.render.units import counted, describe_duration
from ddp_perf.session.gate.disturbance import find_disturbance
from ddp_perf.stats.step_change import paired_terms
from ddp_perf.work.changes import grows
from ddp_perf.work.text import place_text
from ddp_perf.work.values import WorkChange

# The one next command after a duel.


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


# One row for each case of a duel. All files of its report are written from these rows.


SCHEMA_VERSION = 1
BROKEN = "BROKEN"  # the case works on side A, and fails on side B
FAILED = "FAILED"  # it fails on side A too, or there alone
_STATUS = {
    DuelOutcome.SLOWER: Status.RED,
    DuelOutcome.UNDECIDED: Status.UNDECIDED,
    DuelOutcome.FASTER: Status.GREEN,
    DuelOutcome.EQUIVALENT: Status.GREEN,
}
_OF_STEP = (STEP_TIME.name, CPU_TIME.name)


class PairRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a pair by metric, in the units of the metrics."""

    block: int
    first: SideName
    a: dict[str, float]
    b: dict[str, float]


class DuelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A case with its verdicts, and with what differs between its sides."""

    suite: str
    case: str
    ranks: int
    status: Status
    verdict: str
    metrics: tuple[MetricDuel, ...]
    pairs: tuple[PairRow, ...]
    aa: tuple[dict[str, float], ...] = ()  # figures of the launches of side A before the pairs
    failures: tuple[SideFailure, ...] = ()
    power: tuple[PowerEstimate, ...] = ()
    work: tuple[WorkChange, ...] | None = None  # None: not counted
    lines: tuple[Site, ...] = ()  # edited ones that do more
    uncounted: str | None = None
    options: tuple[str, ...] = ()
    structure: str | None = None
    explanation: Explanation | None = None  # of a case that is SLOWER
    terms: tuple[Delta, ...] = ()  # of the step; nothing with fewer than three probed pairs
    disturbed: dict[SideName, str] = {}  # what disturbed the launches of a side, in words

    @property
    def step(self) -> MetricDuel | None:
        """The verdict on the step: by its wall time or by its CPU time, whichever decides."""
        found = [one for one in self.metrics if one.metric in _OF_STEP]
        return next((one for one in found if one.decides), found[0] if found else None)

    @property
    def others(self) -> list[MetricDuel]:
        """The further verdicts that a reader must see.

        They are those that decide and are not EQUIVALENT, and one that does not decide, but is
        SLOWER or FASTER while the step's verdict is another one.
        """
        step = self.step
        return [one for one in self.metrics if one is not step and _matters(one, step)]

    @property
    def shown(self) -> list[MetricDuel]:
        """The verdicts with a reason: on the step, and the others that a reader must see."""
        return [*([] if self.step is None else [self.step]), *self.others]

    @property
    def tabled(self) -> list[MetricDuel]:
        """The verdicts shown, and always that on the wall time of the step: a user waits for it."""
        wall = [one for one in self.metrics if one.metric == STEP_TIME.name]
        return [*self.shown[:1], *(one for one in wall if one not in self.shown), *self.shown[1:]]


class DuelReport(msgspec.Struct, frozen=True, kw_only=True):
    """A duel with its status, and with the next command."""

    schema_version: int = SCHEMA_VERSION
    status: Status
    outcome: DuelOutcome
    broken: bool
    complete: bool
    ended: str | None  # why it is not complete
    headline: str
    counts: dict[str, int]  # cases by verdict, the most frequent first
    a: Side
    b: Side
    began: str  # ISO 8601, UTC
    wall_s: float
    budget_s: float
    false_alarm_rate: float
    alpha: float
    rows: tuple[DuelRow, ...]
    missing: tuple[MissingSide, ...]
    left_out: dict[str, int]  # by reason, how many cases that nobody named
    conditions: dict[SideName, SideConditions]
    differences: tuple[str, ...]  # of the conditions
    next: NextStep | None

    @property
    def verdict(self) -> str:
        """B against A, in a word."""
        return BROKEN if self.broken else self.outcome.value

    def of(self, status: Status) -> list[DuelRow]:
        return [row for row in self.rows if row.status is status]


def _why_ended(duel: Duel) -> str | None:
    if duel.complete:
        return None
    if duel.needed_s is None:
        return "the duel was interrupted: this is what it had measured"
    needed, had = describe_duration(duel.needed_s), describe_duration(duel.budget_s)
    return f"nothing is judged: the budget of {had} has no room for all cases, one of {needed} has"


def duel_report(duel: Duel) -> DuelReport:
    """Return the rows of a duel, its status, and the next command."""
    by_id = {case.id: case for case in duel.cases}
    rows = tuple(_row(case, by_id.get(case.cases.b.single or "")) for case in duel.cases)
    counts = dict(Counter(row.verdict for row in rows).most_common())
    if duel.missing:
        counts["NOT COMPARED"] = len(duel.missing)
    status = Status.RED if duel.broken else _STATUS[duel.outcome]
    return DuelReport(
        status=status,
        outcome=duel.outcome,
        broken=duel.broken,
        complete=duel.complete,
        ended=_why_ended(duel),
        headline=_headline(counts),
        counts=counts,
        a=duel.a,
        b=duel.b,
        began=duel.began,
        wall_s=duel.wall_s,
        budget_s=duel.budget_s,
        false_alarm_rate=duel.false_alarm_rate,
        alpha=duel.alpha,
        rows=rows,
        missing=duel.missing,
        left_out=dict(Counter(one.reason for one in duel.left_out).most_common()),
        conditions=duel.conditions,
        differences=duel.differences,
        next=after_duel(duel),
    )


def _headline(counts: dict[str, int]) -> str:
    if not counts:
        return "nothing was compared"
    shown = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    return f"{counted(sum(counts.values()), 'case')}: {shown}"


def _matters(one: MetricDuel, step: MetricDuel | None) -> bool:
    outcome = one.verdict.outcome
    if one.decides:
        return outcome is not DuelOutcome.EQUIVALENT
    certain = outcome in (DuelOutcome.SLOWER, DuelOutcome.FASTER)
    return certain and (step is None or outcome is not step.verdict.outcome)


def _row(case: CaseDuel, single: CaseDuel | None) -> DuelRow:
    figures = figures_of(case, single)
    terms = [(a.decomposition, b.decomposition) for a, b in figures]
    return DuelRow(
        suite=case.cases.b.suite,
        case=case.id,
        ranks=case.cases.b.world_size,
        status=Status.RED if case.broken else _STATUS[case.outcome],
        verdict=_word(case),
        metrics=case.metrics,
        pairs=tuple(
            PairRow(block=pair.block, first=pair.first, a=a.values, b=b.values)
            for pair, (a, b) in zip(case.pairs, figures, strict=True)
        ),
        aa=tuple(summary.values for summary in summaries_of_aa(case)),
        failures=case.failures,
        power=case.power,
        work=case.work,
        lines=case.lines,
        uncounted=case.uncounted,
        options=case.options,
        structure=case.structure,
        explanation=case.explanation,
        terms=paired_terms([(a, b) for a, b in terms if a is not None and b is not None]),
        disturbed=_disturbed(case),
    )


def _word(case: CaseDuel) -> str:
    if case.failures:
        return BROKEN if case.broken else FAILED
    return case.outcome.value


def _disturbed(case: CaseDuel) -> dict[SideName, str]:
    launches: dict[SideName, Sequence[LaunchResult]] = {
        "A": [*case.aa, *(pair.a for pair in case.pairs)],
        "B": [pair.b for pair in case.pairs],
    }
    found: dict[SideName, str] = {}
    for side, of_side in launches.items():
        measured = Measurement(case=case.cases.of(side), launches=tuple(of_side), failures=())
        disturbance = find_disturbance(case.id, {case.id: measured})
        if disturbance is not None:
            found[side] = str(disturbance)
    return found
