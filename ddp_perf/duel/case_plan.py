"""The plan of a case: which metrics decide, and how often each verdict may be wrong.

It is made after the calibration, from launches of side A alone, so that it cannot depend on what
the pairs show.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.core.metric import CPU_TIME, EFFICIENCY, STEP_TIME, gated_metrics
from ddp_perf.duel.values import Sight
from ddp_perf.stats.duel.pair_plan import PairedPlan, plan_pair_looks
from ddp_perf.stats.duel.pair_power import minimum_detectable
from ddp_perf.stats.duel.yardstick import Yardstick, choose_yardstick, pair_spread

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
    case: Case,
    aa: Sequence[LaunchSummary],
    *,
    most: int,
    rate: float,
    tolerance: float | None,
    with_single: bool,
    may_use_cpu_time: bool = True,
) -> CasePlan:
    """Plan the verdicts on a case with room for ``most`` pairs.

    ``rate`` is the false-alarm rate of the case: of any SLOWER, and as much of any FASTER. The
    verdict on the time takes most of it, and the other metrics that can turn a case red share the
    rest. ``tolerance`` is one for all metrics, or None for that of each. ``with_single``: its
    one-rank case takes part in the duel.
    ``may_use_cpu_time``: both sides have as many threads, so that their CPU times compare.
    """
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
        return PairedPlan(alpha=rate * share, tolerance=own, looks=looks)

    plans = {name: plan(name) for name in metrics}
    return CasePlan(time=time, why=choice.reason if choice else None, plans=plans)


def _yardstick(aa: Sequence[LaunchSummary]) -> Yardstick:
    return choose_yardstick(
        [one.values[STEP_TIME.name] for one in aa], [one.values[CPU_TIME.name] for one in aa]
    )


def sights_of(case: Case, aa: Sequence[LaunchSummary], plan: CasePlan) -> tuple[Sight, ...]:
    """Return what pairs can show of the time of a step: of the metric that decides first."""
    if len(aa) < 2:
        return ()
    names = sorted({STEP_TIME.name, CPU_TIME.name} & plan.plans.keys(), key=plan.time.__ne__)
    sights = []
    for name in names:
        spread = pair_spread([one.values[name] for one in aa])
        sights.append(
            Sight(
                case_id=case.id,
                metric=name,
                launches=len(aa),
                spread=spread,
                minimum_detectable=minimum_detectable(spread, plan.plans[name]),
                pairs=plan.looks[-1],
            )
        )
    return tuple(sights)
