"""The explanation of a slower case: it is launched again with a longer probe."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.measurement import Measurement
from ddp_perf.render.units import counted
from ddp_perf.session.gate.explanation import explain_case, has_terms
from ddp_perf.session.measure.bench import Bench
from ddp_perf.session.measure.rounds import interleave
from ddp_perf.session.result import SuiteResult

_ENOUGH = 3  # launches; with fewer, the judged launches are used too
PROBE_STEPS = 32  # then a probe's own noise is small compared with the noise between launches
_PROBE_RUNS = 3  # each of PROBE_STEPS: plain, without synchronising, only the collectives


class Explainer(msgspec.Struct, frozen=True, kw_only=True):
    """The means to explain the cases of a session: launcher, budget and baseline."""

    baseline: Baseline
    bench: Bench
    budget_s: float  # of further launches, for each case

    def explained(self, result: SuiteResult, case_id: str) -> SuiteResult:
        """Add the explanation of a case to the result, if its baseline has terms to compare with.

        The further launches are stored separately and never judged: to stop or to continue
        because of their figures would raise the gate's error rate. If there are enough of
        them, the explanation uses only them, because the judged ones were selected as slow.
        """
        measurement, stored = result.measurements[case_id], self.baseline.cases[case_id]
        if not has_terms(stored):
            return result
        more = self._launch(measurement)
        explained_by = more if len(more) >= _ENOUGH else [*measurement.launches, *more]
        found = explain_case(
            replace(measurement, launches=tuple(explained_by)),
            stored,
            result.environment,
        )
        explaining = {**result.explaining, case_id: tuple(more)}
        explanations = (
            result.explanations if found is None else {**result.explanations, case_id: found}
        )
        return replace(result, explaining=explaining, explanations=explanations)

    def _launch(self, measurement: Measurement) -> list[LaunchResult]:
        """Run as many launches as were judged, within the budget, until a launch fails."""
        case, judged = measurement.case, measurement.launches
        count = min(len(judged), int(self.budget_s / max(map(_longer_s, judged))))
        plan = interleave([(case, count)], self.bench, start=1 + judged[-1].round)
        plan = [
            replace(request, node=launch.node)  # the nodes that were judged
            for request, launch in zip(plan, judged, strict=False)
        ]
        if plan:
            more = counted(count, "more launch")
            self.bench.progress.extend(plan, f"{more} to explain {case.id}", judged=False)
        done: list[LaunchResult] = []
        for request in plan:
            outcome = self.bench.launcher.launch(_with_longer_probe(request))
            self.bench.progress.launched(request, outcome)
            if isinstance(outcome, LaunchFailure):
                break
            done.append(outcome)
        return done


def _longer_s(launch: LaunchResult) -> float:
    """Return an upper bound of the seconds of such a launch with the longer probe."""
    return launch.wall_s + _PROBE_RUNS * PROBE_STEPS * launch.typical_step_s


def _with_longer_probe(request: LaunchRequest) -> LaunchRequest:
    return replace(request, probe_steps=PROBE_STEPS)
