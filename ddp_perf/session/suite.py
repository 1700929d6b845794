"""One suite from cases to findings: measure, judge, and store what was asked to be stored."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.save import NewSession, SaveMode, is_comparable, merge, refusal
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import REFERENCE_SESSIONS, Baseline, CaseBaseline
from ddp_perf.core.case import Case, Tier
from ddp_perf.core.injection import Injection
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Launcher, LaunchRequest, Runtime
from ddp_perf.session.comparability import other_machine
from ddp_perf.session.environment import describe_environment
from ddp_perf.session.gate import Bar, confirm_suspects, judge_suite
from ddp_perf.session.looks import describe_more, looks_of, more_launches, settle
from ddp_perf.session.plan import estimate_s, interleave
from ddp_perf.session.published import known_cases
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.run import Progress, run_plan
from ddp_perf.session.summaries import as_session, summaries_of
from ddp_perf.system.capacity import Capacity


class SuiteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure of one suite, and what to do with it."""

    suite: str
    cases: tuple[Case, ...]  # all of one tier, and all can run here
    alpha: float
    budget_s: float  # of launches per case, where more than the suite's are needed
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
    elsewhere = {
        case_id: other.accelerator
        for other in reversed(store.relatives(key))  # the nearest has the last word
        for case_id in known_cases(other)
    }
    run = _Run(request, launcher, baseline, elsewhere, progress, on_partial)
    plan = run.first_plan()
    progress.begin(request.suite, len(plan), estimate_s(plan, baseline))
    try:
        runtime = launcher.runtime(request.cases[0].env)
        _check_runtime(tier, runtime)
        result = SuiteResult(
            suite=request.suite,
            tier=tier,
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            environment=describe_environment(capacity, tier, runtime, request.root),
            machine=capacity.machine if tier == "gpu" else None,
            baseline_path=str(store.path(key)),
            alpha=request.alpha,
            injections=tuple(injection.text for injection in request.injections),
            measurements={
                case.id: Measurement(case=case, launches=(), failures=()) for case in request.cases
            },
        )
        result = run.measured_and_judged(result, plan)
    finally:
        progress.end()
    return _saved(result, request, baseline, store)


def _check_runtime(tier: Tier, runtime: Runtime) -> None:
    """Raises LaunchError where torch has no CUDA or no NCCL, before any rank would."""
    if tier == "gpu" and runtime.lacking is not None:
        raise LaunchError(
            f"torch {runtime.torch} is built without {runtime.lacking}, which the gpu tier needs:"
            " install a CUDA build of torch (pytorch.org/get-started), or run -m cpu"
        )


class _Run:
    """Launches and looks at one suite, until every case is decided or has had its budget."""

    def __init__(
        self,
        request: SuiteRequest,
        launcher: Launcher,
        baseline: Baseline,
        elsewhere: Mapping[str, str],
        progress: Progress,
        on_partial: Callable[[SuiteResult], None],
    ) -> None:
        self._request = request
        self._launcher = launcher
        self._baseline = baseline
        self._elsewhere = elsewhere
        self._progress = progress
        self._on_partial = on_partial
        self._looks = looks_of(request.cases, baseline, request.budget_s)

    def first_plan(self) -> list[LaunchRequest]:
        return self._plan({case.id: case.schedule.launches for case in self._request.cases})

    def measured_and_judged(self, result: SuiteResult, plan: list[LaunchRequest]) -> SuiteResult:
        while plan:
            result = self._judged(self._measured(result, plan))
            self._on_partial(result)
            more = more_launches(
                result.measurements, result.findings, self._looks, self._request.budget_s
            )
            plan = self._plan(more, start=1 + max(request.round for request in plan))
            if plan:
                self._progress.extend(len(plan), describe_more(more, self._looks))
        findings = confirm_suspects(
            result.findings, {case.id: case for case in self._request.cases}, self._bar(result)
        )
        return msgspec.structs.replace(result, findings=tuple(findings))

    def _plan(self, launches: Mapping[str, int], start: int = 0) -> list[LaunchRequest]:
        return interleave(
            [(case, launches[case.id]) for case in self._request.cases if case.id in launches],
            self._request.import_paths,
            self._request.injections,
            start=start,
        )

    def _measured(self, result: SuiteResult, plan: list[LaunchRequest]) -> SuiteResult:
        measurements = run_plan(
            plan,
            self._launcher,
            measured=result.measurements,
            progress=self._progress,
            on_round=lambda measured: self._on_partial(_with_measurements(result, measured)),
        )
        return _with_measurements(result, measurements)

    def _judged(self, result: SuiteResult) -> SuiteResult:
        findings = judge_suite(result.measurements, result.summaries, self._bar(result))
        return msgspec.structs.replace(result, findings=tuple(settle(result.findings, findings)))

    def _bar(self, result: SuiteResult) -> Bar:
        return Bar(
            baseline=self._baseline,
            baseline_path=result.baseline_path,
            environment=result.environment,
            alpha=result.alpha,
            looks=self._looks,
            elsewhere=self._elsewhere,
        )


def _with_measurements(result: SuiteResult, measurements: dict[str, Measurement]) -> SuiteResult:
    summaries = {case_id: tuple(rows) for case_id, rows in summaries_of(measurements).items()}
    return msgspec.structs.replace(result, measurements=dict(measurements), summaries=summaries)


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
            refusal(new) or _not_wanted(new, stored, mode) or _not_fit(new, result, stored, mode)
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


def _not_wanted(new: NewSession, stored: CaseBaseline | None, mode: SaveMode) -> str | None:
    if stored is None or mode == "accept":
        return None
    if mode == "missing":
        return "it has a baseline already (append and accept change one)"
    if not is_comparable(stored, new.case):
        return "the stored figures are of other work (accept replaces them)"
    other = other_machine(stored, new.session.environment, world_size=new.case.world_size)
    return None if other is None else f"{other} (accept replaces what is stored)"


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
