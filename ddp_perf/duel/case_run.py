"""One case of a duel while it runs: what is measured, planned, judged and explained so far."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ddp_perf.core.baseline import CaseBaseline
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchResult, first_structure, why_missing
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.metric import (
    CPU_TIME,
    EFFICIENCY,
    PEAK_MEMORY,
    STEP_TIME,
    TAIL,
    gated_metrics,
    metric_spec,
    metric_title,
)
from ddp_perf.core.verdict import DuelOutcome, Explanation, PairedVerdict
from ddp_perf.duel.values import (
    CaseDuel,
    MetricDuel,
    Pair,
    PowerEstimate,
    SideCase,
    SideFailure,
    SideName,
)
from ddp_perf.session.gate.exact import structure_changes
from ddp_perf.session.gate.explanation import explain_case
from ddp_perf.session.measure.experiment import LoggedLaunch
from ddp_perf.stats.interval import mean_estimate
from ddp_perf.stats.model_error import MODEL_ERROR, ModelError
from ddp_perf.stats.pairs import (
    PairedPlan,
    Yardstick,
    choose_yardstick,
    judge_pairs,
    minimum_detectable,
    pair_spread,
    plan_pair_looks,
)
from ddp_perf.stats.summary import as_session, ideal_of, summarise, summarise_all

# The plan of a case: which metrics decide, and how often each verdict may be wrong.
#
# It is made after the calibration, from launches of side A alone, so that it cannot depend on what
# the pairs show.


_OF_TIME = 0.75  # of a case's false-alarm rate: the verdict on its time, which most duels are about


class CasePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of each metric of a case.

    ``time`` is the metric that measures the step: its wall time or, on CPUs that take time from
    each other, its CPU time.
    """

    time: str
    why: str | None  # why the CPU time was chosen, or was not; None: there was no choice
    plans: dict[str, PairedPlan]

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of pairs after which one looks, at all metrics alike."""
        return self.plans[self.time].looks


def plan_case(
    cases: SideCase,
    aa: Sequence[LaunchSummary],
    *,
    most: int,
    rate: float,
    tolerance: float | None,
    with_single: bool,
) -> CasePlan:
    """Plan the verdicts on a case with room for ``most`` pairs.

    ``rate`` is the false-alarm rate of the case: of any SLOWER, and as much of any FASTER. The
    verdict on the time takes most of it, and the other metrics that can turn a case red share the
    rest. ``tolerance`` is one for all metrics, or None for that of each. ``with_single``: its
    one-rank case takes part in the duel. CPU times compare if both sides have as many threads.
    """
    case = cases.b
    may_use_cpu_time = cases.a.threads_per_rank == case.threads_per_rank
    metrics = [name for name in gated_metrics(case) if name != EFFICIENCY.name or with_single]
    measured = [name for name in metrics if all(name in one.values for one in aa)]
    metrics = [name for name in metrics if name in measured or name == EFFICIENCY.name]
    can_choose = may_use_cpu_time and CPU_TIME.name in metrics and len(aa) > 1
    choice = _yardstick(aa) if can_choose else None
    time = choice.metric if choice is not None else STEP_TIME.name
    others = [name for name in metrics if name not in (time, CPU_TIME.name)]
    looks = plan_pair_looks(most)

    def plan(name: str) -> PairedPlan:
        share = 1.0
        if others:
            share = _OF_TIME if name == time else (1 - _OF_TIME) / len(others)
        own = tolerance or case.tolerances.of(name)
        assert own is not None  # it is gated
        is_modelled = case.network is not None and name in (STEP_TIME.name, EFFICIENCY.name)
        return PairedPlan(
            alpha=rate * share,
            tolerance=own,
            looks=looks,
            model_error=MODEL_ERROR if is_modelled else ModelError(),
        )

    plans = {name: plan(name) for name in metrics}
    return CasePlan(time=time, why=choice.reason if choice else None, plans=plans)


def _yardstick(aa: Sequence[LaunchSummary]) -> Yardstick:
    return choose_yardstick(
        [one.values[STEP_TIME.name] for one in aa], [one.values[CPU_TIME.name] for one in aa]
    )


def power_of(case: Case, aa: Sequence[LaunchSummary], plan: CasePlan) -> tuple[PowerEstimate, ...]:
    """Return what pairs can show of the time of a step: of the metric that decides first."""
    if len(aa) < 2:
        return ()
    names = sorted({STEP_TIME.name, CPU_TIME.name} & plan.plans.keys(), key=plan.time.__ne__)
    power = []
    for name in names:
        spread = pair_spread([one.values[name] for one in aa])
        power.append(
            PowerEstimate(
                case_id=case.id,
                metric=name,
                launches=len(aa),
                spread=spread,
                minimum_detectable=minimum_detectable(spread, plan.plans[name]),
                pairs=plan.looks[-1],
            )
        )
    return tuple(power)


# The causes of a slower case: by the structure of its steps, and by their terms.


def structure_difference(case: CaseDuel) -> str | None:
    """Return how the structures of the measured steps differ, or why one is missing, or None."""
    if not case.pairs:
        return None
    a, b = first_structure(_launches(case, "A")), first_structure(_launches(case, "B"))
    if a is None or b is None:
        side: SideName = "A" if a is None else "B"
        why = why_missing(_launches(case, side), "structure")
        return None if why is None else f"side {side} has none {why}"
    return "; ".join(structure_changes(a, b)) or None


def explain_slower(case: CaseDuel, a: Environment, b: Environment) -> Explanation | None:
    """Explain a slower case: side A's launches take the place of a stored session.

    Return None if the launches have no terms.
    """
    if len(case.pairs) < 2 or not case.cases.b.trains:
        return None
    before = _launches(case, "A")
    summaries = summarise_all(before, samples_per_step=case.cases.a.samples_per_step, singles=())
    stored = CaseBaseline(
        work=case.cases.a.work(),
        structure=first_structure(before),
        sessions=(as_session(summaries, a, before[0].started),),
        first={},
    )
    now = Measurement(case=case.cases.b, launches=tuple(_launches(case, "B")), failures=())
    return explain_case(now, stored, b, in_alternation=True)


def _launches(case: CaseDuel, side: SideName) -> list[LaunchResult]:
    return [pair.a if side == "A" else pair.b for pair in case.pairs]


# The figures of both sides of a case: those of each launch, in pairs.


class PairFigures(NamedTuple):
    """The figures of the launches of a pair."""

    a: LaunchSummary
    b: LaunchSummary


def figures_of(case: CaseDuel, single: CaseDuel | None = None) -> list[PairFigures]:
    """Return the figures of each pair, in the order of measurement.

    ``single`` is the one-rank case of the same duel: a pair has an efficiency if the one-rank case
    was launched in the same block.
    """
    beside = {pair.block: pair for pair in single.pairs} if single is not None else {}
    figures = []
    for pair in case.pairs:
        alone = beside.get(pair.block)
        figures.append(
            PairFigures(
                _summary(case, "A", pair.a, single, alone.a if alone else None),
                _summary(case, "B", pair.b, single, alone.b if alone else None),
            )
        )
    return figures


def _summary(
    case: CaseDuel,
    side: SideName,
    launch: LaunchResult,
    single: CaseDuel | None,
    alone: LaunchResult | None,
) -> LaunchSummary:
    own = case.cases.of(side)
    ideal = ideal_of(own, single.cases.of(side)) if single is not None else 1.0
    return summarise(launch, samples_per_step=own.samples_per_step, single=alone, ideal=ideal)


def summaries_of_aa(case: CaseDuel) -> list[LaunchSummary]:
    """Return the figures of the launches of side A before the pairs."""
    return [_summary(case, "A", launch, None, None) for launch in case.aa]


def with_metric(figures: Sequence[PairFigures], metric: str) -> list[tuple[float, float]]:
    """Return the figures of both sides in each pair that has them on both."""
    return [
        (pair.a.values[metric], pair.b.values[metric])
        for pair in figures
        if metric in pair.a.values and metric in pair.b.values
    ]


def log_ratios(values: Sequence[tuple[float, float]]) -> list[float]:
    """Return the log of B ÷ A of each pair."""
    return [math.log(b / a) for a, b in values]


# The verdicts on the metrics of a case, and which of them decide.
#
# A case is red only if training got slower or needs more memory. So the time of a step and the peak
# memory have to be decided. The other metrics can turn the case red, but cannot make it FASTER.
# While one of them seems to be worse, the case is not decided: it takes more pairs to be sure.


_MEAN_STEP = "mean step"
_SLOWER, _FASTER, _UNDECIDED = DuelOutcome.SLOWER, DuelOutcome.FASTER, DuelOutcome.UNDECIDED


def judge_case(
    case_id: str, figures: Sequence[PairFigures], plan: CasePlan, *, ended: bool
) -> tuple[MetricDuel, ...]:
    """Judge each metric of a case by its pairs so far; ``ended``: there will be no more."""
    values = {name: with_metric(figures, name) for name in plan.plans}
    verdicts = {
        name: judge_pairs(log_ratios(values[name]), plan.plans[name], ended=ended)
        for name in plan.plans
        if values[name]
    }
    worse = {name for name in verdicts if _seems_worse(log_ratios(values[name]))}
    if _seems_worse(log_ratios([(pair.a.mean_step_s, pair.b.mean_step_s) for pair in figures])):
        worse.add(_MEAN_STEP)
    parts = {name: _part(name, verdicts, plan, worse, ended=ended) for name in verdicts}
    return tuple(
        MetricDuel(
            case_id=case_id,
            metric=name,
            verdict=verdict,
            a=statistics.median(a for a, _ in values[name]),
            b=statistics.median(b for _, b in values[name]),
            tolerance=plan.plans[name].tolerance,
            decides=parts[name].decides,
            why=parts[name].why,
        )
        for name, verdict in sorted(verdicts.items(), key=lambda one: not parts[one[0]].decides)
    )


def is_decided(metrics: Sequence[MetricDuel]) -> bool:
    """Return whether further pairs would change nothing: red, or all that decide are decided."""
    outcomes = {metric.verdict.outcome for metric in metrics if metric.decides}
    return _SLOWER in outcomes or (bool(outcomes) and _UNDECIDED not in outcomes)


class _Part(NamedTuple):
    decides: bool
    why: str | None = None


def _seems_worse(logs: Sequence[float]) -> bool:
    """Return whether the 95 % interval of the mean is above 0, however often one has looked."""
    low = mean_estimate(logs).low
    return low is not None and low > 0


def _part(
    name: str,
    verdicts: Mapping[str, PairedVerdict],
    plan: CasePlan,
    worse: Set[str],
    *,
    ended: bool,
) -> _Part:
    """Return whether a metric decides, and why it does not, or does in place of another.

    ``worse`` are the metrics that seem to be worse.
    """
    if name in (STEP_TIME.name, CPU_TIME.name):
        return _part_of_time(name, verdicts, plan, worse)
    outcome = verdicts[name].outcome
    if name == PEAK_MEMORY.name:
        if outcome is _FASTER:
            return _Part(False, "less memory makes no step faster")
        return _Part(True)
    may_be_red = outcome is _SLOWER or (outcome is _UNDECIDED and name in worse and not ended)
    numerator = metric_spec(name).numerator
    if may_be_red and numerator is not None and numerator not in worse:
        return _Part(False, f"{metric_title(numerator)} did not grow: that of one rank shrank")
    if may_be_red and name == TAIL.name and _MEAN_STEP not in worse:
        return _Part(False, "the mean step did not grow: its level shrank")
    return _Part(True) if may_be_red else _Part(False, "it decides only if it is SLOWER")


def _part_of_time(
    name: str, verdicts: Mapping[str, PairedVerdict], plan: CasePlan, worse: Set[str]
) -> _Part:
    """Return the part of the step's wall time or CPU time.

    Wall time is what a user waits for. Where the CPU time was chosen since wall time is unsteady,
    it decides until the wall time itself is decided, and unless it is fine while the wall time
    seems to be longer: a step that sleeps uses no CPU time.
    """
    if plan.time == STEP_TIME.name:
        why = plan.why or "step time decides: CPU time adds up the threads of a rank"
        return _Part(True) if name == STEP_TIME.name else _Part(False, why)
    wall, cpu = (verdicts.get(one.name) for one in (STEP_TIME, CPU_TIME))
    by_wall = wall is not None and (
        wall.outcome is not _UNDECIDED
        or (STEP_TIME.name in worse and cpu is not None and cpu.outcome is not _SLOWER)
    )
    if by_wall:
        why = "step time decides: a step that waits longer uses no CPU time"
        return _Part(True) if name == STEP_TIME.name else _Part(False, why)
    return _Part(name == CPU_TIME.name, plan.why)


# One case of a duel while it runs: what is measured, planned and judged so far.


CALIBRATING, PAIRING = 0, 1  # phases of a duel: side A alone, and then pairs of both


class CaseRun:
    """A case of a duel: `duel` is its result so far, and `is_open` whether it needs more pairs."""

    def __init__(self, cases: SideCase, *, calibrated: Sequence[LaunchResult] = ()) -> None:
        self.duel = CaseDuel(cases=cases, aa=tuple(calibrated))
        self.is_open = True
        self._half: LoggedLaunch | None = None  # the launch before, if it is the first of a pair
        self._plan: CasePlan | None = None
        # Of a launch of side A, as the calibration has shown it; None: it was not launched yet.
        self.launch_s = min((launch.wall_s for launch in calibrated), default=None)
        self._pair_s: float | None = None

    @property
    def id(self) -> str:
        return self.duel.id

    @property
    def single(self) -> str | None:
        """The id of its one-rank case."""
        return self.duel.cases.b.single

    @property
    def calibrated(self) -> int:
        """The number of launches of one side that show how launches differ."""
        return len(self.duel.aa)

    @property
    def pair_s(self) -> float:
        """About the seconds of the next pair. Of side B nothing is known before the first one."""
        return self._pair_s if self._pair_s is not None else 2 * (self.launch_s or 0.0)

    def has_pair(self, block: int) -> bool:
        return any(pair.block == block for pair in self.duel.pairs)

    def add(self, launch: LoggedLaunch) -> None:
        """Add a finished launch."""
        first, self._half = self._half, None
        if launch.failure is not None:
            found = SideFailure(side=_side(launch), failure=launch.failure)
            self.duel = replace(self.duel, failures=(*self.duel.failures, found))
            self.is_open = False
        elif launch.phase == CALIBRATING:
            self.launch_s = min(launch.wall_s, self.launch_s or launch.wall_s)
            self.duel = replace(self.duel, aa=(*self.duel.aa, _result(launch)))
        elif launch.turn == 0:
            self._half = launch
        elif first is not None:
            self._pair_s = first.wall_s + launch.wall_s
            results = {_side(one): _result(one) for one in (first, launch)}
            pair = Pair(
                case_id=self.id,
                block=launch.block,
                first=_side(first),
                a=results["A"],
                b=results["B"],
            )
            self.duel = replace(self.duel, pairs=(*self.duel.pairs, pair))

    def plan(
        self, *, most: int, rate: float, tolerance: float | None, with_single: bool
    ) -> CasePlan:
        """Plan the verdicts by the calibration, with room for ``most`` pairs."""
        aa = summaries_of_aa(self.duel)
        self._plan = plan_case(
            self.duel.cases, aa, most=most, rate=rate, tolerance=tolerance, with_single=with_single
        )
        self.duel = replace(self.duel, power=power_of(self.duel.cases.b, aa, self._plan))
        return self._plan

    def judge(self, single: CaseDuel | None, *, ended: bool) -> None:
        """Judge the pairs so far, if it is time to look at them, or if they have ``ended``.

        ``single`` is its one-rank case, if that takes part.
        """
        if self._plan is None or not self.duel.pairs:
            return
        looks, pairs = self._plan.looks, len(self.duel.pairs)
        ended = ended or pairs >= looks[-1]
        if not (ended or pairs in looks):
            return
        metrics = judge_case(self.id, figures_of(self.duel, single), self._plan, ended=ended)
        structure = structure_difference(self.duel)
        self.duel = replace(self.duel, metrics=metrics, structure=structure)
        if ended or is_decided(metrics):
            self.is_open = False


def _side(launch: LoggedLaunch) -> SideName:
    return "A" if launch.arm == "A" else "B"


def _result(launch: LoggedLaunch) -> LaunchResult:
    assert launch.result is not None  # the log keeps it
    return launch.result
