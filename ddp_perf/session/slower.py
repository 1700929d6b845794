"""What to do about a case that got slower: launch it some more, look longer, and say why."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection
from ddp_perf.core.launch_request import LaunchRequest
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.result import LaunchFailure, LaunchResult
from ddp_perf.launch.launcher import Launcher
from ddp_perf.session.explain import explain_case, slower_cases
from ddp_perf.session.plan import interleave
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.run import Progress

_PROBE_STEPS = 32  # a probe's own noise is then small beside that between launches


class Explainer(msgspec.Struct, frozen=True, kw_only=True):
    """How the cases of a session are explained."""

    baseline: Baseline
    launcher: Launcher
    progress: Progress
    budget_s: float  # of further launches, for each case
    import_paths: tuple[str, ...]
    injections: tuple[Injection, ...]

    def explained(self, result: SuiteResult, case_ids: Sequence[str]) -> SuiteResult:
        """With an explanation of each of these cases that got slower.

        Further launches are kept beside the others, and never judged: to stop early, or to go
        on, because of what they show would cost the gate its error rate.
        """
        for case_id in slower_cases(result.findings):
            measurement = result.measurements[case_id]
            if case_id in case_ids and measurement.case.trains:
                result = self._with_explanation(result, measurement)
        return result

    def _with_explanation(self, result: SuiteResult, measurement: Measurement) -> SuiteResult:
        case = measurement.case
        more = self._launch(case, start=1 + measurement.launches[-1].round)
        whole = msgspec.structs.replace(measurement, launches=(*measurement.launches, *more))
        found = explain_case(whole, self.baseline.cases[case.id], result.environment)
        if found is None:
            return result
        return msgspec.structs.replace(
            result,
            explanations={**result.explanations, case.id: found},
            explaining={**result.explaining, case.id: tuple(more)},
        )

    def _launch(self, case: Case, start: int) -> list[LaunchResult]:
        """As many as the judged ones, or fewer: what fails or takes too long ends it."""
        plan = interleave(
            [(case, case.schedule.launches)], self.import_paths, self.injections, start=start
        )
        done: list[LaunchResult] = []
        if self.budget_s > 0:
            self.progress.extend(len(plan), f"looking into {case.id}: {len(plan)} more launches")
        for request in plan:
            if sum(launch.wall_s for launch in done) >= self.budget_s:
                break
            outcome = self.launcher.launch(_looking_longer(request))
            self.progress.launched(request, outcome, None)
            if isinstance(outcome, LaunchFailure):
                break
            done.append(outcome)
        return done


def _looking_longer(request: LaunchRequest) -> LaunchRequest:
    return msgspec.structs.replace(request, probe_steps=_PROBE_STEPS)
