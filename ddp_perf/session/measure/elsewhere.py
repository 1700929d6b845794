"""Further launches of slower cases on another node, before the code is blamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.render.units import counted
from ddp_perf.session.gate.other_node import slower_by_figures
from ddp_perf.session.measure.bench import Bench
from ddp_perf.session.measure.rounds import interleave, run_plan


def launch_elsewhere(
    measured: Mapping[str, Measurement],
    findings: Sequence[Finding],
    bench: Bench,
    *,
    budget_s: float,
    on_round: Callable[[dict[str, Measurement]], None],
) -> dict[str, Measurement]:
    """Run each slower case on the second node as often as on the first, within the budget.

    Its one-rank case is launched beside it. Nothing is launched if there is no other node. A case
    that fails there is left out: the launches on the first node stay what is known of it.
    ``on_round`` gets what would be returned after every round, and also if a launch is interrupted.
    """
    done: dict[str, Measurement] = {}
    for case_id, measurement in measured.items():
        if len(bench.nodes) < 2 or case_id in done or not slower_by_figures(measurement, findings):
            continue
        single = measured.get(measurement.case.single or "")
        beside = [one for one in (single, measurement) if one is not None and one.is_complete]
        round_s = sum(max(launch.wall_s for launch in one.launches) for one in beside)
        count = min(len(measurement.launches), int(budget_s / round_s))
        if count < 1:
            continue
        plan = interleave(
            [(one.case, count) for one in beside if one.case.id not in done],
            bench,
            nodes=bench.nodes[1:2],
        )
        why = f"{counted(len(plan), 'launch')} on node {bench.nodes[1]}: is {case_id} slow there?"
        bench.progress.extend(plan, why, judged=False)
        empty = {
            one.case.id: Measurement(case=one.case, launches=(), failures=()) for one in beside
        }
        there = run_plan(
            plan,
            bench,
            measured={**empty, **done},
            on_round=lambda so_far: on_round(_complete(so_far)),
        )
        done = _complete(there)
    return done


def _complete(measured: Mapping[str, Measurement]) -> dict[str, Measurement]:
    return {name: one for name, one in measured.items() if one.is_complete}
