"""One suite from cases to findings: it is measured, judged, stored and explained."""

from __future__ import annotations

import datetime
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from ddp_perf.baselines.save import Saving
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.launch.launcher import Runtime
from ddp_perf.render.units import counted
from ddp_perf.session.figures import costs_of
from ddp_perf.session.gate.comparability import cases_elsewhere, find_outlier_host
from ddp_perf.session.gate.explanation import slower_cases
from ddp_perf.session.gate.judge_again import compare_other_node, conclude_findings
from ddp_perf.session.gate.judge_suite import JudgingContext, judge_suite
from ddp_perf.session.gate.links import find_links, machine_warnings
from ddp_perf.session.gate.persistence import merge_findings
from ddp_perf.session.measure.environment import check_runtime, describe_environment, with_launches
from ddp_perf.session.measure.experiment import LoggedLaunch
from ddp_perf.session.measure.further_launches import Explainer, launch_elsewhere, profile_cases
from ddp_perf.session.measure.rounds import (
    Bench,
    SessionOptions,
    describe_more,
    interleave,
    launch_times,
    launches_before_next_look,
    logged_session,
    looks_of,
    output_directory,
    run_plan,
)
from ddp_perf.session.measure.storable import (
    Settle,
    cases_to_launch_again,
    kept_if_ended,
    launches_in_rounds,
    refused_cases,
    store_improvements,
    stored_or_kept,
)
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import save
from ddp_perf.stats.summary import summaries_of
from ddp_perf.system.host.host import job_address
from ddp_perf.system.host.termination import held_signals
from ddp_perf.system.ledger import Entries


class SuiteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request to measure one suite: its cases and what to do with the result."""

    suite: str
    cases: tuple[Case, ...]  # all of one tier; all can run on this machine
    requested: frozenset[str] | None = None  # ids of those that tests ask for; None: all
    earlier: SuiteResult | None = None  # an earlier result of the suite in this session
    reported: frozenset[str] = frozenset()  # ids of those whose times gate nothing: they rotate
    alpha: float  # chance of a false REGRESSION of each verdict
    options: SessionOptions
    command: str = ""  # measures the session again
    commands: dict[str, str] = {}  # by case id: measures it again
    baseline: Baseline | None = None  # None: the stored one
    keeps_output: bool = True  # what the ranks of a first launch print replaces what is kept


def run_suite(
    request: SuiteRequest,
    bench: Bench,
    *,
    on_partial: Callable[[SuiteResult], None],
    on_judged: Callable[[SuiteResult], None] = lambda result: None,
    other_work: Callable[[Case], str | None] = lambda case: None,
    settle: Settle | None = None,
) -> SuiteResult:
    """Measure, judge and settle a suite, then store, explain and profile it as requested.

    ``on_partial`` gets the result so far after every round. ``on_judged`` gets the judged result
    before it is stored, explained or profiled. Cases of an earlier result keep their verdicts,
    and their one-rank launches are used for scaling. ``other_work`` tells what a case's step does
    beyond what is stored of it; such a case begins no level. ``settle`` is the second stage of the
    verdicts.

    Raises LaunchError if ranks cannot be started. Raises BaselineError if the baseline cannot be
    read (before any launch) or written: then the same command goes on from the launches.
    """
    capacity, store, code = bench.capacity, bench.store, bench.code
    tier = request.cases[0].tier
    key = capacity.accelerator_key(tier)
    baseline = request.baseline or store.load(key)
    structures = store.work.structures(request.suite)
    elsewhere = cases_elsewhere(store.relatives(key))
    refused = refused_cases(
        request.cases, baseline, store, request.options, other_work, reported=request.reported
    )
    plan = _plan(request, bench, {case.id: case.schedule.launches for case in request.cases})
    bench.progress.begin(request.suite, plan, launch_times(request.cases, baseline))
    try:
        runtime = bench.launcher.runtime(request.cases[0])
        check_runtime(tier, runtime, capacity.machine)
        path = str(store.path(key))
        result = request.earlier or _new_result(request, bench, runtime, path)
        # More launches hardly add to what the nodes already show of the code: one look is enough.
        budget_s = 0.0 if bench.one_by_one else request.options.budget_s
        looks = looks_of(request.cases, baseline, budget_s)
        result = msgspec.structs.replace(result, looks={**result.looks, **looks})
        context = JudgingContext(
            baseline=baseline,
            baseline_path=result.baseline_path,
            structures=structures,
            environment=result.environment,
            machine=result.machine,
            alpha=request.alpha,
            looks=looks,
            elsewhere=elsewhere,
            reported=result.reported,
        )
        saving = Saving(
            mode=request.options.save_mode or "missing",
            reason=request.options.reason,
            patch=code.state.patch if code.state is not None else b"",
        )
        with logged_session(request.cases, bench, result.environment, result.date) as log:
            if request.earlier is None:
                result = msgspec.structs.replace(result, date=log.date)
            keep = functools.partial(
                _kept,
                functools.partial(
                    save, baseline=baseline, store=store, saving=saving, refused=refused
                ),
                log,
            )
            keep_unjudged = functools.partial(
                _kept_unjudged, before=result, request=request, context=context, keep=keep
            )
            with kept_if_ended(result, on_partial, keep_unjudged) as note:
                result = _measured_and_judged(result, plan, request, context, bench, note, log)
            keeps = request.options.save_mode in ("append", "missing")  # also if it is ended
            ids = [case.id for case in request.cases] if keeps else []

            def keep_settled(ended: SuiteResult) -> SuiteResult:
                on_judged(ended)
                return keep(ended, ids)

            with kept_if_ended(result, on_partial, keep_settled) as note:
                result = result if settle is None else settle(result, baseline, note)
            on_judged(result)
            # Save before explaining and profiling: an interrupt there does not lose the session.
            keep = functools.partial(stored_or_kept, keep, bench.root)
            if request.options.save_mode == "append" and request.options.accept_improvements:
                result = store_improvements(result, saving, keep)
            if request.options.save_mode is not None:
                find = functools.partial(
                    cases_to_launch_again,
                    baseline=baseline,
                    refused=refused,
                    options=request.options,
                )
                result = _saved(result, request, bench, on_partial, find, keep)
        explainer = Explainer(
            baseline=baseline, bench=bench, budget_s=request.options.explain_budget_s
        )
        for case_id in _to_explain(result, request):
            result = explainer.explained(result, case_id)
            on_partial(result)
        if request.options.profile_steps is not None:
            result = _profiled(result, request, request.options.profile_steps, bench)
    finally:
        bench.progress.end()
    return result


def _new_result(
    request: SuiteRequest, bench: Bench, runtime: Runtime, baseline_path: str
) -> SuiteResult:
    """Return the result of a suite of which nothing is measured yet."""
    capacity, code, tier = bench.capacity, bench.code, request.cases[0].tier
    node, alike = next(iter(bench.nodes), None), len(bench.one_by_one) or None
    environment = describe_environment(
        capacity, tier, runtime, bench.root, node=node, alike_nodes=alike
    )
    return SuiteResult(
        suite=request.suite,
        tier=tier,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        environment=code.in_environment(environment, request.cases),
        unkept=code.problem,
        job=job_address(os.environ),
        machine=capacity.machine if tier == "gpu" else None,
        baseline_path=baseline_path,
        nodes=bench.nodes,
        alpha=request.alpha,
        reported=tuple(sorted(request.reported)),
        injections=tuple(injection.text for injection in bench.injections),
        measurements={},
        command=request.command,
        commands=request.commands,
    )


def _measured_and_judged(
    result: SuiteResult,
    plan: list[LaunchRequest],
    request: SuiteRequest,
    context: JudgingContext,
    bench: Bench,
    on_partial: Callable[[SuiteResult], None],
    log: Entries[LoggedLaunch],
) -> SuiteResult:
    """Measure and judge, until every case is decided or its budget is spent."""
    before, own = result, {case.id: case for case in request.cases}
    findings: list[Finding] = []
    measured = {
        case.id: Measurement(case=case, launches=(), failures=(), nodes=bench.one_by_one)
        for case in request.cases
    }
    while plan:
        measured = run_plan(
            plan,
            bench,
            measured=measured,
            on_round=functools.partial(_report_partial, on_partial, before, findings),
            log=log,
        )
        result = _extended(before, measured, findings)
        context = msgspec.structs.replace(context, environment=result.environment)
        judged = judge_suite(result.measurements, result.summaries, context)
        findings = merge_findings(findings, [new for new in judged if new.case_id in own])
        result = _extended(before, measured, findings)
        on_partial(result)
        more = launches_before_next_look(
            measured, findings, context.looks, request.options.budget_s
        )
        plan = _plan(request, bench, more, start=1 + plan[-1].round)
        if plan:
            bench.progress.extend(plan, describe_more(more, context.looks), judged=True)
    concluded = conclude_findings(findings, context, before.date)
    on_other = launch_elsewhere(
        measured,
        concluded,
        bench,
        budget_s=request.options.explain_budget_s,
        on_round=lambda so_far: on_partial(_with_elsewhere(result, so_far)),
    )
    here = next(iter(bench.nodes), None)
    concluded = compare_other_node(concluded, on_other, context, here=here)
    result = _with_elsewhere(_extended(before, measured, concluded), on_other)
    seen = result.measurements, result.summaries, context.baseline, context.environment
    return msgspec.structs.replace(
        result, links=find_links(*seen), outlier_host=find_outlier_host(*seen)
    )


def _kept(
    keep: Callable[..., SuiteResult],
    log: Entries[LoggedLaunch],
    result: SuiteResult,
    ids: Collection[str],
    **changes: Saving,
) -> SuiteResult:
    """Store these cases. No later session goes on from launches that are stored."""
    with held_signals():
        kept = keep(result, ids, **changes)
        if kept.saved != result.saved:
            log.discard()
    return kept


def _kept_unjudged(
    ended: SuiteResult,
    before: SuiteResult,
    request: SuiteRequest,
    context: JudgingContext,
    keep: Callable[[SuiteResult, Collection[str]], SuiteResult],
) -> SuiteResult:
    """Store what an interrupt leaves of the cases without a baseline, which no verdict decides.

    The looks of the others were planned for more launches.
    """
    if request.options.save_mode != "missing":
        return ended
    judged = judge_suite(ended.measurements, ended.summaries, context)
    ids = [case.id for case in request.cases]
    new = tuple(found for found in judged if found.case_id in ids)
    return keep(msgspec.structs.replace(ended, findings=(*before.findings, *new)), ids)


def _with_elsewhere(result: SuiteResult, on_other: Mapping[str, Measurement]) -> SuiteResult:
    """Return the result with these launches on another node."""
    return msgspec.structs.replace(result, elsewhere={**result.elsewhere, **on_other})


def _saved(
    result: SuiteResult,
    request: SuiteRequest,
    bench: Bench,
    on_partial: Callable[[SuiteResult], None],
    find: Callable[[SuiteResult, Collection[str]], list[Case]],
    keep: Callable[[SuiteResult, Collection[str]], SuiteResult],
) -> SuiteResult:
    """Store what can be stored now; then launch the cases that ``find`` finds, and store them."""
    mode = request.options.save_mode
    wanted = [case.id for case in request.cases if mode != "accept" or _is_requested(case, request)]
    wanted = [case_id for case_id in wanted if case_id not in result.saved]
    again = find(result, wanted)
    later = {case.id for case in again}
    result = keep(result, [case_id for case_id in wanted if case_id not in later])
    on_partial(result)
    with kept_if_ended(result, on_partial, lambda ended: keep(ended, later)) as note:
        while again:
            result = _launch_again(result, again, request, bench, note)
            again = find(result, later)
    result = keep(result, later)
    on_partial(result)
    return result


def _is_requested(case: Case, request: SuiteRequest) -> bool:
    """Return whether a test asks for the case, which is not here for its scaling alone."""
    return request.requested is None or case.id in request.requested


def _launch_again(
    result: SuiteResult,
    again: Sequence[Case],
    request: SuiteRequest,
    bench: Bench,
    on_partial: Callable[[SuiteResult], None],
) -> SuiteResult:
    """Run further launches of these cases. ``on_partial`` gets the result after every round."""
    more = launches_in_rounds(again, {case.id for case in request.cases}, result)
    measurements = {case.id: result.measurements[case.id] for case in request.cases}
    rounds = [launch.round for one in measurements.values() for launch in one.launches]
    plan = _plan(request, bench, more, start=1 + max(rounds))
    cases = f"{len(again)} of {counted(len(measurements), 'case')}"
    why = f"{cases} cannot be stored yet: {counted(len(plan), 'more launch')}"
    bench.progress.extend(plan, why, judged=False)
    measured = run_plan(
        plan,
        bench,
        measured=measurements,
        on_round=lambda so_far: on_partial(_with_launches(result, so_far)),
    )
    return _with_launches(result, measured)


def _with_launches(result: SuiteResult, measured: Mapping[str, Measurement]) -> SuiteResult:
    """Return the result with these launches. Its findings stay: they are not judged again."""
    measurements = {**result.measurements, **measured}
    summaries = {case_id: tuple(rows) for case_id, rows in summaries_of(measurements).items()}
    costs = costs_of(measurements, summaries)
    environment = with_launches(result.environment, measurements.values())
    return msgspec.structs.replace(
        result,
        environment=environment,
        warnings=machine_warnings(measurements.values(), environment),
        measurements=measurements,
        summaries=summaries,
        costs=costs,
    )


def _to_explain(result: SuiteResult, request: SuiteRequest) -> list[str]:
    """Return the cases of this request that got slower, and nothing explains it yet.

    An acknowledged one needs no explanation.
    """
    own = {case.id for case in request.cases} - result.explanations.keys()
    news = [found for found in result.findings if found.case_id in own and not found.is_expected]
    return slower_cases(news)


def _profiled(result: SuiteResult, request: SuiteRequest, steps: int, bench: Bench) -> SuiteResult:
    """Add a profile of each case of which no launch failed."""
    cases = [case for case in request.cases if not result.measurements[case.id].failed]
    profiles = profile_cases(cases, steps, bench)
    return msgspec.structs.replace(result, profiles={**result.profiles, **profiles})


def _report_partial(
    on_partial: Callable[[SuiteResult], None],
    before: SuiteResult,
    findings: Sequence[Finding],
    measured: Mapping[str, Measurement],
) -> None:
    on_partial(_extended(before, measured, findings))


def _plan(
    request: SuiteRequest, bench: Bench, launches: Mapping[str, int], start: int = 0
) -> list[LaunchRequest]:
    """Plan the launches. The first one of each case keeps what its ranks print."""
    plan = interleave(
        [(case, launches[case.id]) for case in request.cases if case.id in launches],
        bench,
        start=start,
        nodes=bench.one_by_one,
    )
    return [
        msgspec.structs.replace(launch, output=str(output_directory(bench.root, launch.case)))
        if launch.round == 0 and request.keeps_output
        else launch
        for launch in plan
    ]


def _extended(
    before: SuiteResult, measured: Mapping[str, Measurement], findings: Sequence[Finding]
) -> SuiteResult:
    """Return the earlier result with this measurement and these findings added."""
    return msgspec.structs.replace(
        _with_launches(before, measured), findings=(*before.findings, *findings)
    )
