"""One suite from cases to findings: it is measured, judged, stored and explained."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.save import SaveMode
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.launch.launcher import Launcher
from ddp_perf.session.figures import costs_of
from ddp_perf.session.gate.acknowledgement import with_acknowledgements
from ddp_perf.session.gate.explanation import slower_cases
from ddp_perf.session.gate.judge_suite import JudgingContext, confirm_suspects, judge_suite
from ddp_perf.session.gate.links import find_links
from ddp_perf.session.gate.published import known_cases
from ddp_perf.session.measure.environment import check_runtime, describe_environment
from ddp_perf.session.measure.explainer import Explainer
from ddp_perf.session.measure.looks import (
    describe_more,
    launches_before_next_look,
    looks_of,
    merge_findings,
)
from ddp_perf.session.measure.plan import estimate_s, interleave
from ddp_perf.session.measure.profiling import profile_cases
from ddp_perf.session.measure.run import Progress, run_plan
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import save
from ddp_perf.session.summaries import summaries_of
from ddp_perf.system.capacity import Capacity


class SuiteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request to measure one suite: its cases, budgets and options."""

    suite: str
    cases: tuple[Case, ...]  # all of one tier; all can run on this machine
    earlier: SuiteResult | None = None  # an earlier result of the suite in this session
    alpha: float
    budget_s: float  # for all launches of a case that needs more than the suite's number
    explain_budget_s: float  # for each slower case, of launches for its explanation
    save_mode: SaveMode | None = None
    reason: str | None = None  # of save_mode "accept"
    injections: tuple[Injection, ...] = ()  # each case gets those that apply to it
    commands: dict[str, str] = {}  # by case id: the command that measures it again
    root: Path  # the checkout of the measured code
    import_paths: tuple[str, ...] = ()  # the folders that a user's workload is imported from
    profile_steps: int | None = None  # in one more launch of each case; None: no profile


def run_suite(
    request: SuiteRequest,
    *,
    capacity: Capacity,
    launcher: Launcher,
    store: BaselineStore,
    progress: Progress,
    on_partial: Callable[[SuiteResult], None],
    on_judged: Callable[[SuiteResult], None] = lambda result: None,
) -> SuiteResult:
    """Measure and judge a suite, then store, explain and profile it as requested.

    ``on_partial`` gets the result so far after every round. ``on_judged`` gets the judged result
    before it is stored, explained or profiled. Cases of an earlier result keep their verdicts,
    and their one-rank launches are used for scaling.

    Raises LaunchError if ranks cannot be started. Raises BaselineError if the baseline cannot be
    read (before any launch) or written (after ``on_partial`` got the whole result).
    """
    tier = request.cases[0].tier
    key = capacity.accelerator_key(tier)
    baseline, structures = store.load(key), store.load_structures(request.suite)
    elsewhere = {
        case_id: other.accelerator
        for other in reversed(store.relatives(key))  # the nearest relative replaces the others
        for case_id in known_cases(other)
    }
    plan = _plan(request, {case.id: case.schedule.launches for case in request.cases})
    progress.begin(request.suite, len(plan), estimate_s(plan, baseline))
    try:
        runtime = launcher.runtime(request.cases[0])
        check_runtime(tier, runtime, capacity.machine)
        result = request.earlier or SuiteResult(
            suite=request.suite,
            tier=tier,
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            environment=describe_environment(capacity, tier, runtime, request.root),
            machine=capacity.machine if tier == "gpu" else None,
            baseline_path=str(store.path(key)),
            alpha=request.alpha,
            injections=tuple(injection.text for injection in request.injections),
            measurements={},
            commands=request.commands,
        )
        context = JudgingContext(
            baseline=baseline,
            baseline_path=result.baseline_path,
            structures=structures,
            environment=result.environment,
            alpha=request.alpha,
            looks=looks_of(request.cases, baseline, request.budget_s),
            elsewhere=elsewhere,
        )
        result = _measured_and_judged(
            result,
            plan,
            request,
            context,
            launcher=launcher,
            progress=progress,
            on_partial=on_partial,
        )
        on_judged(result)
        # Save before explaining and profiling: an interrupt there does not lose the session.
        if request.save_mode is not None:
            result = _saved(result, request, baseline, store)
            on_partial(result)
        explainer = _explainer(request, baseline, launcher, progress)
        for case_id in _to_explain(result, request):
            result = explainer.explained(result, case_id)
            on_partial(result)
        if request.profile_steps is not None:
            result = _profiled(result, request, request.profile_steps, launcher, progress)
    finally:
        progress.end()
    return result


def _measured_and_judged(
    result: SuiteResult,
    plan: list[LaunchRequest],
    request: SuiteRequest,
    context: JudgingContext,
    *,
    launcher: Launcher,
    progress: Progress,
    on_partial: Callable[[SuiteResult], None],
) -> SuiteResult:
    """Measure and judge, until every case is decided or its budget is spent."""
    before, own = result, {case.id: case for case in request.cases}
    findings: list[Finding] = []
    measured = {case.id: Measurement(case=case, launches=(), failures=()) for case in request.cases}
    while plan:
        measured = run_plan(
            plan,
            launcher,
            measured=measured,
            progress=progress,
            on_round=functools.partial(_report_partial, on_partial, before, findings),
        )
        result = _extended(before, measured, findings)
        judged = judge_suite(result.measurements, result.summaries, context)
        findings = merge_findings(findings, [new for new in judged if new.case_id in own])
        result = _extended(before, measured, findings)
        on_partial(result)
        more = launches_before_next_look(measured, findings, context.looks, request.budget_s)
        plan = _plan(request, more, start=1 + plan[-1].round)
        if plan:
            progress.extend(len(plan), describe_more(more, context.looks))
    findings = confirm_suspects(findings, own, context)
    result = _extended(
        before, measured, with_acknowledgements(findings, context.baseline, before.date)
    )
    links = find_links(result.measurements, result.summaries, context.baseline, context.environment)
    return msgspec.structs.replace(result, links=links)


def _saved(
    result: SuiteResult, request: SuiteRequest, baseline: Baseline, store: BaselineStore
) -> SuiteResult:
    assert request.save_mode is not None
    ids = [case.id for case in request.cases]
    return save(result, ids, baseline, store, mode=request.save_mode, reason=request.reason)


def _to_explain(result: SuiteResult, request: SuiteRequest) -> list[str]:
    """Return the cases of this request that got slower and were not acknowledged."""
    own = {case.id for case in request.cases}
    news = [
        found
        for found in result.findings
        if found.case_id in own and (found.known is None or found.known.state != "expected")
    ]
    return slower_cases(news)


def _explainer(
    request: SuiteRequest, baseline: Baseline, launcher: Launcher, progress: Progress
) -> Explainer:
    return Explainer(
        baseline=baseline,
        launcher=launcher,
        progress=progress,
        budget_s=request.explain_budget_s,
        import_paths=request.import_paths,
        root=request.root,
        injections=request.injections,
    )


def _profiled(
    result: SuiteResult,
    request: SuiteRequest,
    steps: int,
    launcher: Launcher,
    progress: Progress,
) -> SuiteResult:
    """Run every case that did not fail once more, under the profiler."""
    profiles = profile_cases(
        [case for case in request.cases if not result.measurements[case.id].failures],
        steps,
        root=request.root,
        import_paths=request.import_paths,
        injections=request.injections,
        launcher=launcher,
        progress=progress,
    )
    return msgspec.structs.replace(result, profiles={**result.profiles, **profiles})


def _report_partial(
    on_partial: Callable[[SuiteResult], None],
    before: SuiteResult,
    findings: Sequence[Finding],
    measured: Mapping[str, Measurement],
) -> None:
    on_partial(_extended(before, measured, findings))


def _plan(
    request: SuiteRequest, launches: Mapping[str, int], start: int = 0
) -> list[LaunchRequest]:
    return interleave(
        [(case, launches[case.id]) for case in request.cases if case.id in launches],
        request.import_paths,
        request.injections,
        start=start,
        root=request.root,
    )


def _extended(
    before: SuiteResult, measured: Mapping[str, Measurement], findings: Sequence[Finding]
) -> SuiteResult:
    """Return the earlier result with this measurement and these findings added."""
    measurements = {**before.measurements, **measured}
    summaries = {case_id: tuple(rows) for case_id, rows in summaries_of(measurements).items()}
    return msgspec.structs.replace(
        before,
        measurements=measurements,
        summaries=summaries,
        costs=costs_of(measurements, summaries),
        findings=(*before.findings, *findings),
    )
