"""Further launches: that explain or profile a case, on another node, or measured once."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult, Profiling
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.errors import TraceError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.render.units import counted
from ddp_perf.session.gate.explanation import explain_case, has_terms
from ddp_perf.session.gate.judge_again import slower_by_figures
from ddp_perf.session.measure.environment import check_runtime, describe_environment
from ddp_perf.session.measure.rounds import (
    Bench,
    LaunchOutcome,
    interleave,
    profile_directory,
    run_plan,
    with_outcome,
)
from ddp_perf.session.result import CaseProfile, SuiteResult
from ddp_perf.stats.summary import summaries_of
from ddp_perf.system.capacity import Capacity
from ddp_perf.traces.analysis import analyse_traces
from ddp_perf.traces.chrome import merge_traces

# The explanation of a slower case: it is launched again with a longer probe.


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
        plan = [
            replace(
                request, node=launch.node, probe_steps=PROBE_STEPS
            )  # the nodes that were judged
            for request, launch in zip(
                interleave([(case, count)], self.bench, start=1 + judged[-1].round),
                judged,
                strict=False,
            )
        ]
        if not plan:
            return []
        more = counted(count, "more launch")
        self.bench.progress.extend(plan, f"{more} to explain {case.id}", judged=False)
        empty = {case.id: Measurement(case=case, launches=(), failures=())}
        done = run_plan(plan, self.bench, measured=empty, on_round=lambda so_far: None)
        return list(done[case.id].launches)


def _longer_s(launch: LaunchResult) -> float:
    """Return an upper bound of the seconds of such a launch with the longer probe."""
    return launch.wall_s + _PROBE_RUNS * PROBE_STEPS * launch.typical_step_s


# ``--ddp-profile``: one more launch of each case, with torch.profiler after its steps.
#
# Its figures are not used, so that a profiler never runs in a judged launch.


MERGED = "merged.json.gz"


def profile_cases(cases: Sequence[Case], steps: int, bench: Bench) -> dict[str, CaseProfile]:
    """Profile one more launch of each case; return the profiles by case id.

    The traces are written under the root's artifacts/.
    Raises LaunchError if ranks cannot be started. A launch that fails, or traces that cannot be
    read, become the problem of that case.
    """
    plan = interleave([(case, 1) for case in cases], bench)
    why = f"one more launch of each case, with {steps} profiled steps"
    bench.progress.extend(plan, why, judged=False)
    return {request.case.id: _profile(request, steps, bench) for request in plan}


def _profile(request: LaunchRequest, steps: int, bench: Bench) -> CaseProfile:
    directory = profile_directory(bench.root, request.case)
    profiling = Profiling(steps=steps, directory=str(directory))
    request = msgspec.structs.replace(request, profiling=profiling)
    outcome = bench.launcher.launch(request)
    bench.progress.launched(request, outcome)
    if isinstance(outcome, LaunchFailure):
        return CaseProfile(directory=str(directory), problem=str(outcome))
    if (why := outcome.why_missing("profile")) is not None:
        return CaseProfile(directory=str(directory), problem=why)
    files = {rank: Path(profiling.file(rank)) for rank in range(request.case.run_ranks)}
    try:
        merge_traces(files, directory / MERGED)
        analysis = analyse_traces(list(files.values()))
    except (TraceError, OSError) as error:
        return CaseProfile(directory=str(directory), problem=str(error))
    return CaseProfile(directory=str(directory), analysis=analysis)


# Further launches of slower cases on another node, before the code is blamed.


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


# The figures of cases that are measured once, and neither judged nor stored.


def measure_unjudged(
    cases: Sequence[Case],
    launcher: Launcher,
    capacity: Capacity,
    *,
    root: Path,
    on_launch: Callable[[LaunchRequest, LaunchOutcome], None],
) -> SuiteResult:
    """Launch the cases of one suite in turn, until all are done or a launch fails.

    ``root`` is where ranks import from, and where the measured code is checked out. Nothing is
    written. Raises LaunchError if ranks cannot be started.
    """
    tier, suite = cases[0].tier, cases[0].suite
    runtime = launcher.runtime(cases[0])
    check_runtime(tier, runtime, capacity.machine)
    environment = describe_environment(capacity, tier, runtime, root)
    began = datetime.datetime.now(datetime.timezone.utc)
    measured = {case.id: Measurement(case=case, launches=(), failures=()) for case in cases}
    for request in _plan(cases, root):
        outcome = launcher.launch(request)
        measured[request.case.id] = with_outcome(measured[request.case.id], outcome)
        on_launch(request, outcome)
        if isinstance(outcome, LaunchFailure):
            break
    return SuiteResult(
        suite=suite,
        tier=tier,
        date=began.isoformat(timespec="seconds"),
        environment=environment,
        machine=capacity.machine if tier == "gpu" else None,
        baseline_path="",
        alpha=0.0,  # nothing is judged
        measurements=measured,
        summaries={case_id: tuple(rows) for case_id, rows in summaries_of(measured).items()},
    )


def _plan(cases: Sequence[Case], root: Path) -> list[LaunchRequest]:
    """Return the launches in the order A B A B …."""
    return [
        LaunchRequest(case=case, round=round_, import_paths=(str(root),))
        for round_ in range(cases[0].schedule.launches)
        for case in cases
    ]
