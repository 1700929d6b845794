"""One session judged against another: the older one's launches stand for a baseline session."""

from __future__ import annotations

import enum

import msgspec

from ddp_perf.baselines.save import merge
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import gated_metrics
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import ResultsError
from ddp_perf.session.gate.comparability import environment_differences
from ddp_perf.session.gate.disturbance import qualified
from ddp_perf.session.gate.explanation import explain_case, slower_cases
from ddp_perf.session.gate.judge_suite import Bar, Remedies, judge_suite
from ddp_perf.session.gate.links import find_links
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import new_sessions
from ddp_perf.stats.rule.alpha_spending import alpha_per_metric

_REMEDIES = Remedies(
    no_such_case="measure it in both sessions",
    other_work="measure the same work in both sessions",
    other_machine="measure both sessions on one machine, set up alike",
)
_WORSE = (Outcome.REGRESSION, Outcome.INCOMPARABLE)
_GOOD = (Outcome.PASS, Outcome.IMPROVEMENT)


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two sessions, as its results file holds it."""

    name: str  # the file
    complete: bool  # False: written while the session was still running
    suites: tuple[SuiteResult, ...]

    def accelerators(self) -> dict[str, str]:
        """Name of each accelerator by its key."""
        environments = [suite.environment for suite in self.suites]
        return {where.accelerator_key: where.accelerator for where in environments}

    def measurements(self) -> dict[tuple[str, str], Measurement]:
        """By accelerator and case id, which tell cases apart; the suite's name does not."""
        return {
            (suite.environment.accelerator_key, case_id): measurement
            for suite in self.suites
            for case_id, measurement in suite.measurements.items()
        }


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A case that could not be compared, and why: never a pass."""

    case_id: str
    reason: str


class ComparisonOutcome(str, enum.Enum):
    """Of all findings together; the worst decides."""

    PASS = "PASS"
    REGRESSION = "REGRESSION"
    UNDECIDED = "UNDECIDED"


class SessionComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The newer session against the older one."""

    old: Side
    new: Side
    false_alarm_rate: float  # of all verdicts together
    alpha: float  # of each
    changed: tuple[str, ...]  # conditions that differ, with both values
    failed: tuple[LaunchFailure, ...]  # of the newer session
    gaps: tuple[Gap, ...]
    judged: tuple[SuiteResult, ...]  # the newer session's, with the findings of this comparison

    @property
    def findings(self) -> list[Finding]:
        return [finding for suite in self.judged for finding in suite.findings]

    @property
    def conclusion(self) -> ComparisonOutcome:
        outcomes = {finding.verdict.outcome for finding in self.findings}
        if self.failed or not outcomes.isdisjoint(_WORSE):
            return ComparisonOutcome.REGRESSION
        if self.gaps or not outcomes or not outcomes.issubset(_GOOD):
            return ComparisonOutcome.UNDECIDED
        return ComparisonOutcome.PASS


def compare_sessions(old: Side, new: Side, *, false_alarm_rate: float) -> SessionComparison:
    """Judge every case of ``new`` as a pytest session with ``old`` as its baseline would.

    Raises ResultsError where the two were measured on different accelerators.
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


def _check_accelerators(old: Side, new: Side) -> None:
    """One side may lack a tier, and the cases of it; another machine is no gap but a mistake."""
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


def _judged(suite: SuiteResult, old: Side, alpha: float) -> SuiteResult:
    key = suite.environment.accelerator_key
    sessions = [
        session
        for before in old.suites
        if before.environment.accelerator_key == key
        for session in new_sessions(before)
    ]
    empty = Baseline(accelerator=key, units={})
    bar = Bar(
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
        msgspec.structs.replace(  # `Comparison.changed` tells it once for all
            qualified(finding, measured, where=f"in {old.name} "), changed=()
        )
        for finding in judge_suite(suite.measurements, suite.summaries, bar)
    ]
    explanations = {
        case_id: explain_case(
            suite.measurements[case_id], bar.baseline.cases[case_id], suite.environment
        )
        for case_id in slower_cases(findings)
    }
    return msgspec.structs.replace(
        suite,
        baseline_path=old.name,
        alpha=alpha,
        findings=tuple(findings),
        links=find_links(suite.measurements, suite.summaries, bar.baseline, bar.environment),
        explanations={case_id: why for case_id, why in explanations.items() if why is not None},
        saved={},
    )


def _gaps(old: Side, new: Side) -> tuple[Gap, ...]:
    """Cases of either side that the other lacks, or that the old one holds no figures of."""
    before, after = old.measurements(), new.measurements()
    gaps = []
    for key in before | after:
        for side, measurement in ((old, before.get(key)), (new, after.get(key))):
            if measurement is None:
                gaps.append(Gap(case_id=key[1], reason=f"not in {side.name}"))
            elif side is old and measurement.failures:
                reason = f"failed in {side.name}: {measurement.failures[0]}"
                gaps.append(Gap(case_id=key[1], reason=reason))
            elif not measurement.launches and not measurement.failures:
                gaps.append(Gap(case_id=key[1], reason=f"no launch finished in {side.name}"))
    return tuple(gaps)


def _changes(old: Side, new: Side) -> tuple[str, ...]:
    """What differs between the conditions: often it is the very thing under test."""
    changes = [
        change
        for before, after in _same_accelerator(old, new)
        for change in environment_differences(
            before, after, {**before.conditions(), **after.conditions()}
        )
    ]
    return tuple(dict.fromkeys(changes))


def _same_accelerator(old: Side, new: Side) -> list[tuple[Environment, Environment]]:
    return [
        (before.environment, after.environment)
        for before in old.suites
        for after in new.suites
        if before.environment.accelerator_key == after.environment.accelerator_key
    ]
