"""One row for each case of a duel, and the one next command after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.metric import CPU_TIME, STEP_TIME
from ddp_perf.core.verdict import Delta, DuelOutcome, Explanation
from ddp_perf.core.work import Site
from ddp_perf.duel.case_run import figures_of, summaries_of_aa
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
from ddp_perf.report.next_steps.duel import after_duel
from ddp_perf.session.gate.disturbance import find_disturbance
from ddp_perf.stats.step_change import paired_terms
from ddp_perf.work.values import WorkChange

# One row for each case of a duel. All files of its report are written from these rows.


SCHEMA_VERSION = 1
BROKEN = "BROKEN"
FAILED = "FAILED"
NOT_COMPARED = "NOT COMPARED"
UNTOUCHED = "UNTOUCHED"
# The words where there is no verdict on pairs.
NO_VERDICT = {
    BROKEN: "the case works on side A, and fails on side B",
    FAILED: "the case fails on side A",
    NOT_COMPARED: "a side lacks the case, or it cannot run here",
    UNTOUCHED: "no changed file can touch a case",
}
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
        if not self.rows and self.outcome is DuelOutcome.EQUIVALENT:
            return UNTOUCHED
        return BROKEN if self.broken else self.outcome.value


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
        counts[NOT_COMPARED] = len(duel.missing)
    status = Status.RED if duel.broken else _STATUS[duel.outcome]
    return DuelReport(
        status=status,
        outcome=duel.outcome,
        broken=duel.broken,
        complete=duel.complete,
        ended=_why_ended(duel),
        headline=_headline(counts, duel),
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
        left_out=dict(
            Counter(one.reason for one in (*duel.left_out, *duel.untouched)).most_common()
        ),
        conditions=duel.conditions,
        differences=duel.differences,
        next=after_duel(duel),
    )


def _headline(counts: dict[str, int], duel: Duel) -> str:
    if not counts:
        return "no changed file can touch a case" if duel.untouched else "nothing was compared"
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
