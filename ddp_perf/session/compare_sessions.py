"""The comparison of two sides, each of one session or several, outside pytest."""

from __future__ import annotations

import msgspec

from ddp_perf.baselines.save import NewSession, merge
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import gated_metrics
from ddp_perf.session.compared_side import ComparedSession, ComparedSide
from ddp_perf.session.conclusion import Conclusion, conclude
from ddp_perf.session.gate.comparability import environment_differences
from ddp_perf.session.gate.disturbance import with_disturbance
from ddp_perf.session.gate.explanation import explain_slower_cases
from ddp_perf.session.gate.judge_suite import JudgingContext, Remedies, judge_suite
from ddp_perf.session.gate.links import find_links
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import new_sessions
from ddp_perf.stats.rule.error_rate import alpha_per_metric

_REMEDIES = Remedies(
    no_such_case="measure it in both sessions",
    no_such_figure="measure both sessions with the same ddp-perf",
    other_work="measure the same work in both sessions",
    other_structure="",
    other_machine="measure both sessions on one machine, set up alike",
)


class MissingComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A case that could not be compared, and the reason. It never counts as a pass."""

    case_id: str
    reason: str


class SessionComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The newer sessions compared with the older ones."""

    old: ComparedSide
    new: ComparedSide
    false_alarm_rate: float  # of all verdicts together
    alpha: float  # of each
    changed: tuple[str, ...]  # conditions that differ, with both values
    failed: tuple[LaunchFailure, ...]  # of the newer sessions
    gaps: tuple[MissingComparison, ...]
    judged: tuple[SuiteResult, ...]  # of the newer sessions, with the findings of this comparison

    @property
    def findings(self) -> list[Finding]:
        return [finding for suite in self.judged for finding in suite.findings]

    @property
    def conclusion(self) -> Conclusion:
        return conclude(self.findings, failed=bool(self.failed), missing=bool(self.gaps))

    @property
    def same_session(self) -> bool:
        """True if a session is on both sides."""
        return any(
            one.suites and one.suites == other.suites
            for one in self.old.sessions
            for other in self.new.sessions
        )

    @property
    def in_turn(self) -> bool:
        """True if neither side was measured as a whole before the other one."""
        old, new = ([one.began for one in side.sessions] for side in (self.old, self.new))
        return not (max(old) < min(new) or max(new) < min(old))


def compare_sessions(
    before: ComparedSide, after: ComparedSide, *, false_alarm_rate: float
) -> SessionComparison:
    """Judge every case of the sides ``after`` by the side ``before``, of the same machine.

    For two machines see `other_machine.machine_differences`: they get no verdict.
    """
    merged = after.merged()
    gated = sum(
        len(gated_metrics(measurement.case))
        for suite in merged
        for measurement in suite.measurements.values()
    )
    alpha = alpha_per_metric(false_alarm_rate, gated)
    return SessionComparison(
        old=before,
        new=after,
        false_alarm_rate=false_alarm_rate,
        alpha=alpha,
        changed=_changes(before, after),
        failed=tuple(
            failure
            for suite in merged
            for m in suite.measurements.values()
            for failure in m.failures
        ),
        gaps=_gaps(before, after),
        judged=tuple(_judged(suite, before, after, alpha) for suite in merged),
    )


def _judged(suite: SuiteResult, old: ComparedSide, new: ComparedSide, alpha: float) -> SuiteResult:
    """Return a suite of the newer sessions, judged by the older ones."""
    key = suite.environment.accelerator_key
    context = JudgingContext(
        baseline=_baseline(old, key),
        baseline_path=old.name,
        remedies=_REMEDIES,
        environment=suite.environment,
        alpha=alpha,
        compared={
            case_id: tuple(one.session for one in found)
            for case_id, found in _by_case(new, key).items()
        },
    )
    measured = {
        case_id: measurement
        for before in old.merged()
        if before.environment.accelerator_key == key
        for case_id, measurement in before.measurements.items()
    }
    findings = [
        # The text names both sides once for all: their dates, and `SessionComparison.changed`.
        msgspec.structs.replace(
            with_disturbance(finding, measured, where=f"in {old.name} "),
            changed=(),
            baseline_date=None,
        )
        for finding in judge_suite(suite.measurements, suite.summaries, context)
    ]
    judged = msgspec.structs.replace(
        suite.unjudged(),
        baseline_path=old.name,
        alpha=alpha,
        findings=tuple(findings),
        links=find_links(
            suite.measurements, suite.summaries, context.baseline, context.environment
        ),
    )
    explanations = explain_slower_cases(judged, context.baseline)
    return msgspec.structs.replace(judged, explanations=explanations)


def _baseline(side: ComparedSide, key: str) -> Baseline:
    """Return the sessions of a side on one accelerator as a baseline."""
    by_case = _by_case(side, key)
    empty = Baseline(accelerator=key, units={})
    begun = merge(empty, [found[0] for found in by_case.values()], mode="missing", reason=None)
    cases = {
        case_id: msgspec.structs.replace(
            case, sessions=tuple(one.session for one in by_case[case_id])
        )
        for case_id, case in begun.cases.items()
    }
    return msgspec.structs.replace(begun, cases=cases)


def _by_case(side: ComparedSide, key: str) -> dict[str, list[NewSession]]:
    """Return the sessions of each case on one accelerator, oldest first."""
    by_case: dict[str, list[NewSession]] = {}
    for suite in side.suites:
        if suite.environment.accelerator_key == key:
            for one in new_sessions(suite):
                by_case.setdefault(one.case.id, []).append(one)
    return by_case


def _gaps(old: ComparedSide, new: ComparedSide) -> tuple[MissingComparison, ...]:
    """Return the cases that one side lacks, or that a session has no figures of."""
    before, after = old.sessions[0].measured(), new.sessions[0].measured()
    gaps = []
    for key in before | after:
        for side in (old, new):
            for session in side.sessions:
                if reason := _why_no_figures(session, key, failures=side is old):
                    gaps.append(MissingComparison(case_id=key[1], reason=reason))
    return tuple(gaps)


def _why_no_figures(
    session: ComparedSession, key: tuple[str, str], *, failures: bool
) -> str | None:
    """Return why a session has no figures of a case; ``failures``: as well if a launch failed."""
    _, measurement = session.measured().get(key, (None, None))
    if measurement is None:
        return f"not in {session.name}"
    if measurement.failures:
        return f"failed in {session.name}: {measurement.failures[0]}" if failures else None
    return None if measurement.launches else f"no launch finished in {session.name}"


def _changes(old: ComparedSide, new: ComparedSide) -> tuple[str, ...]:
    """Return the conditions that differ, since the tested change is often one of them."""
    changes = [
        change
        for before, after in _same_accelerator(old, new)
        for change in environment_differences(
            before, after, {**before.conditions(), **after.conditions()}
        )
    ]
    return tuple(dict.fromkeys(changes))


def _same_accelerator(
    old: ComparedSide, new: ComparedSide
) -> list[tuple[Environment, Environment]]:
    return [
        (before.environment, after.environment)
        for before in old.suites
        for after in new.suites
        if before.environment.accelerator_key == after.environment.accelerator_key
    ]
