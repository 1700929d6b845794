"""One suite from cases to findings: measure, judge, and store what was asked to be stored."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.save import NewSession, SaveMode, is_comparable, merge, refusal
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import REFERENCE_SESSIONS, Baseline, CaseBaseline
from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.verdict import Outcome
from ddp_perf.launch.launcher import Launcher
from ddp_perf.session.conditions import find_disturbance
from ddp_perf.session.environment import describe_environment
from ddp_perf.session.gate import Bar, as_session, judge_suite, summaries_of
from ddp_perf.session.plan import estimate_s, interleave
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.run import Progress, run_plan
from ddp_perf.system.capacity import Capacity


class SuiteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure of one suite, and what to do with it."""

    suite: str
    cases: tuple[Case, ...]  # all of one tier, and all can run here
    alpha: float
    save_mode: SaveMode | None = None
    reason: str | None = None  # of save_mode "accept"
    injections: tuple[Injection, ...] = ()  # each case gets those that apply to it
    root: Path  # where the measured code is checked out
    import_paths: tuple[str, ...] = ()  # where a user's workload is imported from


def run_suite(
    request: SuiteRequest,
    *,
    capacity: Capacity,
    launcher: Launcher,
    store: BaselineStore,
    progress: Progress,
    on_partial: Callable[[SuiteResult], None],
) -> SuiteResult:
    """Measure and judge. ``on_partial`` gets what there is so far, after every round.

    Raises LaunchError when ranks cannot be started, BaselineError when the baseline cannot
    be read (before anything is launched) or written (after ``on_partial`` got everything).
    """
    tier = request.cases[0].tier
    key = capacity.accelerator_key(tier)
    baseline = store.load(key)
    plan = interleave(request.cases, request.import_paths, request.injections)
    progress.begin(request.suite, len(plan), estimate_s(plan, baseline))
    try:
        runtime = launcher.runtime(request.cases[0].env)
        result = SuiteResult(
            suite=request.suite,
            tier=tier,
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            environment=describe_environment(capacity, tier, runtime, request.root),
            baseline_path=str(store.path(key)),
            alpha=request.alpha,
            injections=tuple(injection.text for injection in request.injections),
            measurements={},
        )
        measurements = run_plan(
            plan,
            launcher,
            progress=progress,
            on_round=lambda measured: on_partial(_with_measurements(result, measured)),
        )
    finally:
        progress.end()
    result = _judged(_with_measurements(result, measurements), baseline)
    on_partial(result)
    return _saved(result, request, baseline, store)


def _with_measurements(result: SuiteResult, measurements: dict[str, Measurement]) -> SuiteResult:
    summaries = {case_id: tuple(rows) for case_id, rows in summaries_of(measurements).items()}
    return msgspec.structs.replace(result, measurements=dict(measurements), summaries=summaries)


def _judged(result: SuiteResult, baseline: Baseline) -> SuiteResult:
    bar = Bar(
        baseline=baseline,
        baseline_path=result.baseline_path,
        environment=result.environment,
        alpha=result.alpha,
    )
    findings = judge_suite(result.measurements, result.summaries, bar)
    return msgspec.structs.replace(result, findings=tuple(findings))


def _saved(
    result: SuiteResult, request: SuiteRequest, baseline: Baseline, store: BaselineStore
) -> SuiteResult:
    """Store the session of every case that ``save_mode`` wants and nothing speaks against."""
    if request.save_mode is None:
        return result
    saved: dict[str, str] = {}
    not_saved: dict[str, str] = {}
    sessions: list[NewSession] = []
    for new in new_sessions(result):
        mode, stored = request.save_mode, baseline.cases.get(new.case.id)
        why_not = (
            _disturbed(new, result)
            or refusal(new)
            or _not_wanted(new, stored, mode)
            or _not_fit(new, result, stored, mode)
        )
        if why_not is None:
            sessions.append(new)
            saved[new.case.id] = f"stored ({mode}) in {result.baseline_path}"
        else:
            not_saved[new.case.id] = f"not stored: {why_not}"
    if sessions:
        save_mode, reason = request.save_mode, request.reason
        store.update(
            baseline.accelerator,
            lambda current: merge(current, sessions, mode=save_mode, reason=reason),
        )
    return msgspec.structs.replace(result, saved=saved, not_saved=not_saved)


def new_sessions(result: SuiteResult) -> Sequence[NewSession]:
    """Each case that was measured without a failed launch, in the form of a stored session."""
    return [
        NewSession(
            case=measurement.case,
            session=as_session(result.summaries[case_id], result.environment, result.date),
            structure=measurement.launches[0].ranks[0].structure,
        )
        for case_id, measurement in result.measurements.items()
        if measurement.launches and not measurement.failures
    ]


def _disturbed(new: NewSession, result: SuiteResult) -> str | None:
    """Also without a baseline to be judged against, and whatever the mode: these figures are
    the disturbance's. The reason before all others, since it explains them.
    """
    disturbance = find_disturbance(new.case.id, result.measurements, with_single=True)
    return str(disturbance) if disturbance and disturbance.prevails else None


def _not_wanted(new: NewSession, stored: CaseBaseline | None, mode: SaveMode) -> str | None:
    if stored is None or mode == "accept":
        return None
    if mode == "missing":
        return "it has a baseline already (append and accept change one)"
    if not is_comparable(stored, new.case):
        return "the stored figures are of other work (accept replaces them)"
    return None


def _not_fit(
    new: NewSession, result: SuiteResult, stored: CaseBaseline | None, mode: SaveMode
) -> str | None:
    """A session that its own verdicts speak against, where it would move the level."""
    outcomes = {f.verdict.outcome for f in result.findings if f.case_id == new.case.id}
    if Outcome.INVALID in outcomes:
        return "the measurement is INVALID"
    sets_level = stored is not None and len(stored.sessions) < REFERENCE_SESSIONS
    if mode == "append" and sets_level and Outcome.REGRESSION in outcomes:
        return (
            f"a REGRESSION, and the first {REFERENCE_SESSIONS} sessions set the level"
            " (accept it with a reason, if it is meant)"
        )
    return None
