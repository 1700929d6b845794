"""One suite from cases to findings: measure, judge, and store what was asked to be stored."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.session.figures import costs_of
from ddp_perf.session.gate.acknowledgement import with_known
from ddp_perf.session.gate.explanation import slower_cases
from ddp_perf.session.gate.judge_suite import Bar, confirm_suspects, judge_suite
from ddp_perf.session.gate.links import find_links
from ddp_perf.session.gate.published import known_cases
from ddp_perf.session.measure.bench import Bench, Policy
from ddp_perf.session.measure.environment import check_runtime, describe_environment
from ddp_perf.session.measure.explainer import Explainer
from ddp_perf.session.measure.looks import (
    describe_more,
    launches_before_next_look,
    looks_of,
    settle,
)
from ddp_perf.session.measure.plan import estimate_s, interleave
from ddp_perf.session.measure.profiling import profile_cases
from ddp_perf.session.measure.run import run_plan
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import save
from ddp_perf.session.summaries import summaries_of
from ddp_perf.system.capacity import Capacity


class SuiteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of one suite to measure, and what to do with the result."""

    suite: str
    cases: tuple[Case, ...]  # all of one tier, and all can run here
    earlier: SuiteResult | None = None  # what this session measured of the suite before
    alpha: float  # chance of a false REGRESSION of each verdict
    policy: Policy
    commands: dict[str, str] = {}  # by case id: the command that measures it again


def run_suite(
    request: SuiteRequest,
    bench: Bench,
    *,
    capacity: Capacity,
    store: BaselineStore,
    on_partial: Callable[[SuiteResult], None],
    on_judged: Callable[[SuiteResult], None] = lambda result: None,
) -> SuiteResult:
    """Measure and judge. ``on_partial`` gets what there is so far, after every round;
    ``on_judged`` what stands, before it is stored, explained or profiled.

    What was measured earlier stays as it was judged, and lends its one-rank launches.

    Raises LaunchError when ranks cannot be started, BaselineError when the baseline cannot
    be read (before anything is launched) or written (after ``on_partial`` got everything).
    """
    tier = request.cases[0].tier
    key = capacity.accelerator_key(tier)
    baseline, structures = store.load(key), store.load_structures(request.suite)
    elsewhere = {
        case_id: other.accelerator
        for other in reversed(store.relatives(key))  # the nearest has the last word
        for case_id in known_cases(other)
    }
    plan = _plan(request, bench, {case.id: case.schedule.launches for case in request.cases})
    bench.progress.begin(request.suite, len(plan), estimate_s(plan, baseline))
    try:
        runtime = bench.launcher.runtime(request.cases[0])
        check_runtime(tier, runtime, capacity.machine)
        result = request.earlier or SuiteResult(
            suite=request.suite,
            tier=tier,
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            environment=describe_environment(capacity, tier, runtime, bench.root),
            machine=capacity.machine if tier == "gpu" else None,
            baseline_path=str(store.path(key)),
            alpha=request.alpha,
            injections=tuple(injection.text for injection in bench.injections),
            measurements={},
            commands=request.commands,
        )
        bar = Bar(
            baseline=baseline,
            baseline_path=result.baseline_path,
            structures=structures,
            environment=result.environment,
            alpha=request.alpha,
            looks=looks_of(request.cases, baseline, request.policy.budget_s),
            elsewhere=elsewhere,
        )
        result = _measured_and_judged(result, plan, request, bar, bench, on_partial)
        on_judged(result)
        # Before what is no part of the verdicts: who is interrupted there has lost no session.
        if request.policy.save_mode is not None:
            result = _saved(result, request, baseline, store)
            on_partial(result)
        explainer = Explainer(
            baseline=baseline, bench=bench, budget_s=request.policy.explain_budget_s
        )
        for case_id in _to_explain(result, request):
            result = explainer.explained(result, case_id)
            on_partial(result)
        if request.policy.profile_steps is not None:
            result = _profiled(result, request, request.policy.profile_steps, bench)
    finally:
        bench.progress.end()
    return result


def _measured_and_judged(
    result: SuiteResult,
    plan: list[LaunchRequest],
    request: SuiteRequest,
    bar: Bar,
    bench: Bench,
    on_partial: Callable[[SuiteResult], None],
) -> SuiteResult:
    """Launch and look, until every case is decided or has had its budget."""
    before, own = result, {case.id: case for case in request.cases}
    findings: list[Finding] = []
    measured = {case.id: Measurement(case=case, launches=(), failures=()) for case in request.cases}
    while plan:
        measured = run_plan(
            plan,
            bench,
            measured=measured,
            on_round=functools.partial(_tell, on_partial, before, findings),
        )
        result = _grown(before, measured, findings)
        judged = judge_suite(result.measurements, result.summaries, bar)
        findings = settle(findings, [new for new in judged if new.case_id in own])
        result = _grown(before, measured, findings)
        on_partial(result)
        more = launches_before_next_look(measured, findings, bar.looks, request.policy.budget_s)
        plan = _plan(request, bench, more, start=1 + plan[-1].round)
        if plan:
            bench.progress.extend(len(plan), describe_more(more, bar.looks))
    findings = confirm_suspects(findings, own, bar)
    result = _grown(before, measured, with_known(findings, bar.baseline, before.date))
    links = find_links(result.measurements, result.summaries, bar.baseline, bar.environment)
    return msgspec.structs.replace(result, links=links)


def _saved(
    result: SuiteResult, request: SuiteRequest, baseline: Baseline, store: BaselineStore
) -> SuiteResult:
    mode = request.policy.save_mode
    assert mode is not None
    ids = [case.id for case in request.cases]
    return save(result, ids, baseline, store, mode=mode, reason=request.policy.reason)


def _to_explain(result: SuiteResult, request: SuiteRequest) -> list[str]:
    """Cases of this request that got slower, and that nobody knew of."""
    own = {case.id for case in request.cases}
    news = [
        found
        for found in result.findings
        if found.case_id in own and (found.known is None or found.known.state != "expected")
    ]
    return slower_cases(news)


def _profiled(result: SuiteResult, request: SuiteRequest, steps: int, bench: Bench) -> SuiteResult:
    """Add a profile of each case of which no launch failed."""
    cases = [case for case in request.cases if not result.measurements[case.id].failures]
    profiles = profile_cases(cases, steps, bench)
    return msgspec.structs.replace(result, profiles={**result.profiles, **profiles})


def _tell(
    on_partial: Callable[[SuiteResult], None],
    before: SuiteResult,
    findings: Sequence[Finding],
    measured: Mapping[str, Measurement],
) -> None:
    on_partial(_grown(before, measured, findings))


def _plan(
    request: SuiteRequest, bench: Bench, launches: Mapping[str, int], start: int = 0
) -> list[LaunchRequest]:
    return interleave(
        [(case, launches[case.id]) for case in request.cases if case.id in launches],
        bench,
        start=start,
    )


def _grown(
    before: SuiteResult, measured: Mapping[str, Measurement], findings: Sequence[Finding]
) -> SuiteResult:
    """What was there, with what was measured now."""
    measurements = {**before.measurements, **measured}
    summaries = {case_id: tuple(rows) for case_id, rows in summaries_of(measurements).items()}
    return msgspec.structs.replace(
        before,
        measurements=measurements,
        summaries=summaries,
        costs=costs_of(measurements, summaries),
        findings=(*before.findings, *findings),
    )
