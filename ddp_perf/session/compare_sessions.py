"""The comparison of two sessions: the older one serves as a baseline of one session."""

from __future__ import annotations

import msgspec

from ddp_perf.baselines.save import merge
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import gated_metrics
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import ResultsError
from ddp_perf.session.conclusion import Conclusion, conclude
from ddp_perf.session.gate.comparability import environment_differences
from ddp_perf.session.gate.disturbance import with_disturbance
from ddp_perf.session.gate.explanation import explain_slower_cases
from ddp_perf.session.gate.judge_suite import JudgingContext, Remedies, judge_suite
from ddp_perf.session.gate.links import find_links
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import new_sessions
from ddp_perf.stats.rule.alpha_spending import alpha_per_metric

_REMEDIES = Remedies(
    no_such_case="measure it in both sessions",
    no_such_figure="measure both sessions with the same ddp-perf",
    other_work="measure the same work in both sessions",
    other_machine="measure both sessions on one machine, set up alike",
)


class ComparedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two sessions, as its results file contains it."""

    name: str  # the file
    complete: bool  # False: written while the session was still running
    suites: tuple[SuiteResult, ...]

    def accelerators(self) -> dict[str, str]:
        """Return the name of each accelerator by its key."""
        environments = [suite.environment for suite in self.suites]
        return {one.accelerator_key: one.accelerator for one in environments}

    def measurements(self) -> dict[tuple[str, str], Measurement]:
        """Return the measurements by accelerator and case id, which identify a case."""
        return {
            (suite.environment.accelerator_key, case_id): measurement
            for suite in self.suites
            for case_id, measurement in suite.measurements.items()
        }


class MissingComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A case that could not be compared, and the reason. It never counts as a pass."""

    case_id: str
    reason: str


class SessionComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The newer session compared with the older one."""

    old: ComparedSession
    new: ComparedSession
    false_alarm_rate: float  # of all verdicts together
    alpha: float  # of each
    changed: tuple[str, ...]  # conditions that differ, with both values
    failed: tuple[LaunchFailure, ...]  # of the newer session
    gaps: tuple[MissingComparison, ...]
    judged: tuple[SuiteResult, ...]  # the newer session's, with the findings of this comparison

    @property
    def findings(self) -> list[Finding]:
        return [finding for suite in self.judged for finding in suite.findings]

    @property
    def conclusion(self) -> Conclusion:
        return conclude(self.findings, failed=bool(self.failed), missing=bool(self.gaps))


def compare_sessions(
    old: ComparedSession, new: ComparedSession, *, false_alarm_rate: float
) -> SessionComparison:
    """Judge every case of ``new`` as a pytest session with ``old`` as its baseline would.

    Raises ResultsError if the two were measured on different accelerators.
    """
    _check_accelerators(old, new)
    measurements = new.measurements()
    gated = sum(len(gated_metrics(measurement.case)) for measurement in measurements.values())
    alpha = alpha_per_metric(false_alarm_rate, gated)
    return SessionComparison(
        old=old,
        new=new,
        false_alarm_rate=false_alarm_rate,
        alpha=alpha,
        changed=_changes(old, new),
        failed=tuple(failure for m in measurements.values() for failure in m.failures),
        gaps=_gaps(old, new),
        judged=tuple(_judged(suite, old, alpha) for suite in new.suites),
    )


def _check_accelerators(old: ComparedSession, new: ComparedSession) -> None:
    """Raise ResultsError if each session has an accelerator that the other one lacks."""
    before, after = old.accelerators(), new.accelerators()
    if not (before.keys() <= after.keys() or after.keys() <= before.keys()):
        names = [
            ", ".join(f"{name} ({key})" for key, name in accelerators.items())
            for accelerators in (before, after)
        ]
        raise ResultsError(
            f"{Outcome.INCOMPARABLE.value}: {old.name} was measured on {names[0]}, {new.name} on"
            f" {names[1]}; compare results of one machine"
        )


def _judged(suite: SuiteResult, old: ComparedSession, alpha: float) -> SuiteResult:
    key = suite.environment.accelerator_key
    sessions = [
        session
        for before in old.suites
        if before.environment.accelerator_key == key
        for session in new_sessions(before)
    ]
    empty = Baseline(accelerator=key, units={})
    context = JudgingContext(
        baseline=merge(empty, sessions, mode="missing", reason=None),
        baseline_path=old.name,
        remedies=_REMEDIES,
        environment=suite.environment,
        alpha=alpha,
    )
    measured = {
        case_id: measurement
        for (accelerator, case_id), measurement in old.measurements().items()
        if accelerator == key
    }
    findings = [
        msgspec.structs.replace(  # `SessionComparison.changed` reports it once for all
            with_disturbance(finding, measured, where=f"in {old.name} "), changed=()
        )
        for finding in judge_suite(suite.measurements, suite.summaries, context)
    ]
    judged = msgspec.structs.replace(
        suite,
        baseline_path=old.name,
        alpha=alpha,
        findings=tuple(findings),
        links=find_links(
            suite.measurements, suite.summaries, context.baseline, context.environment
        ),
        saved={},
        misfit=None,
    )
    explanations = explain_slower_cases(judged, context.baseline)
    return msgspec.structs.replace(judged, explanations=explanations)


def _gaps(old: ComparedSession, new: ComparedSession) -> tuple[MissingComparison, ...]:
    """Return the cases that one session lacks, or that have no figures in the old one."""
    before, after = old.measurements(), new.measurements()
    gaps = []
    for key in before | after:
        for side, measurement in ((old, before.get(key)), (new, after.get(key))):
            if measurement is None:
                gaps.append(MissingComparison(case_id=key[1], reason=f"not in {side.name}"))
            elif side is old and measurement.failures:
                reason = f"failed in {side.name}: {measurement.failures[0]}"
                gaps.append(MissingComparison(case_id=key[1], reason=reason))
            elif not measurement.launches and not measurement.failures:
                gaps.append(
                    MissingComparison(case_id=key[1], reason=f"no launch finished in {side.name}")
                )
    return tuple(gaps)


def _changes(old: ComparedSession, new: ComparedSession) -> tuple[str, ...]:
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
    old: ComparedSession, new: ComparedSession
) -> list[tuple[Environment, Environment]]:
    return [
        (before.environment, after.environment)
        for before in old.suites
        for after in new.suites
        if before.environment.accelerator_key == after.environment.accelerator_key
    ]
