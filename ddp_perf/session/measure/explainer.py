"""What to do about a case that got slower: launch it some more, look longer, and say why."""

from __future__ import annotations

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.measurement import Measurement
from ddp_perf.session.gate.explanation import explain_case, has_terms
from ddp_perf.session.measure.bench import Bench
from ddp_perf.session.measure.plan import interleave
from ddp_perf.session.result import SuiteResult

_ENOUGH = 3  # launches, to explain a case by them alone
PROBE_STEPS = 32  # a probe's own noise is then small beside that between launches
_PROBE_RUNS = 3  # each of so many steps: as they are, without synchronising, their collectives


class Explainer(msgspec.Struct, frozen=True, kw_only=True):
    """How the cases of a session are explained."""

    baseline: Baseline
    bench: Bench
    budget_s: float  # of further launches, for each case

    def explained(self, result: SuiteResult, case_id: str) -> SuiteResult:
        """With an explanation of this case, where its baseline holds terms to compare with.

        Further launches are kept beside the others, and never judged: to stop early, or to go
        on, because of what they show would cost the gate its error rate. The explanation rests
        on them alone where there are enough: the judged ones were chosen for being slow.
        """
        measurement, stored = result.measurements[case_id], self.baseline.cases[case_id]
        if not has_terms(stored):
            return result
        more = self._launch(measurement)
        looked_at = more if len(more) >= _ENOUGH else [*measurement.launches, *more]
        found = explain_case(
            msgspec.structs.replace(measurement, launches=tuple(looked_at)),
            stored,
            result.environment,
        )
        explaining = {**result.explaining, case_id: tuple(more)}
        explanations = (
            result.explanations if found is None else {**result.explanations, case_id: found}
        )
        return msgspec.structs.replace(result, explaining=explaining, explanations=explanations)

    def _launch(self, measurement: Measurement) -> list[LaunchResult]:
        """As many as the judged ones, or as the budget has room for; a failure ends them."""
        case, judged = measurement.case, measurement.launches
        count = min(len(judged), int(self.budget_s / max(map(_longer_s, judged))))
        plan = interleave([(case, count)], self.bench, start=1 + judged[-1].round)
        if plan:
            self.bench.progress.extend(count, f"looking into {case.id}: {count} more launches")
        done: list[LaunchResult] = []
        for request in plan:
            outcome = self.bench.launcher.launch(_looking_longer(request))
            self.bench.progress.launched(request, outcome, None)
            if isinstance(outcome, LaunchFailure):
                break
            done.append(outcome)
        return done


def _longer_s(launch: LaunchResult) -> float:
    """What such a launch takes at most when it looks longer."""
    return launch.wall_s + _PROBE_RUNS * PROBE_STEPS * launch.typical_step_s


def _looking_longer(request: LaunchRequest) -> LaunchRequest:
    return msgspec.structs.replace(request, probe_steps=PROBE_STEPS)
