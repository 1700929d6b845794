"""The comparison of two sides, each of one session or several, outside pytest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.baselines.save import NewSession, merge
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import gated_metrics
from ddp_perf.core.verdict import FALSE_ALARM_RATE
from ddp_perf.errors import ResultsError
from ddp_perf.render.units import change_text
from ddp_perf.session.gate.comparability import (
    checked_conditions,
    environment_differences,
    mismatches,
)
from ddp_perf.session.gate.disturbance import with_disturbance
from ddp_perf.session.gate.explanation import explain_slower_cases
from ddp_perf.session.gate.judge_suite import JudgingContext, Remedies, judge_suite
from ddp_perf.session.gate.links import find_links
from ddp_perf.session.result import Conclusion, SuiteResult, conclude
from ddp_perf.session.store_baseline import new_sessions
from ddp_perf.stats.rule.error_rate import alpha_per_metric

# One side of a comparison: one results file of a state of the code, or several.


CaseKey = tuple[str, str]  # accelerator and case id, which identify a case


class ComparedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One of the compared sessions, as its results file contains it."""

    name: str  # the file
    complete: bool  # False: written while the session was still running
    suites: tuple[SuiteResult, ...]

    @property
    def began(self) -> str:
        """The date of its first suite; empty if nothing was measured."""
        return min((suite.date for suite in self.suites), default="")

    def measured(self) -> dict[CaseKey, tuple[SuiteResult, Measurement]]:
        """Return each measurement, and the suite that it is of."""
        return {
            (suite.environment.accelerator_key, case_id): (suite, measurement)
            for suite in self.suites
            for case_id, measurement in suite.measurements.items()
        }


class ComparedSide(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of one side, oldest first."""

    sessions: tuple[ComparedSession, ...]

    @property
    def name(self) -> str:
        """The names of its files."""
        return ", ".join(session.name for session in self.sessions)

    @property
    def suites(self) -> tuple[SuiteResult, ...]:
        """The suites of all sessions."""
        return tuple(suite for session in self.sessions for suite in session.suites)

    def accelerators(self) -> dict[str, str]:
        """Return the name of each accelerator by its key."""
        environments = [suite.environment for suite in self.suites]
        return {one.accelerator_key: one.accelerator for one in environments}

    def merged(self) -> tuple[SuiteResult, ...]:
        """Return the suites of the newest session, each with the launches of all sessions."""
        return tuple(self._merged(suite) for suite in self.sessions[-1].suites)

    def _merged(self, suite: SuiteResult) -> SuiteResult:
        if len(self.sessions) == 1:
            return suite
        key = suite.environment.accelerator_key
        parts = {case_id: list(self._renumbered((key, case_id))) for case_id in suite.measurements}
        return msgspec.structs.replace(
            suite,
            measurements={
                case_id: msgspec.structs.replace(
                    measurement,
                    launches=tuple(launch for launches, _ in parts[case_id] for launch in launches),
                    failures=tuple(
                        failure
                        for session in self.sessions
                        for failure in session.measured()[key, case_id][1].failures
                    ),
                )
                for case_id, measurement in suite.measurements.items()
            },
            summaries={
                case_id: tuple(row for _, rows in parts[case_id] for row in rows)
                for case_id in suite.measurements
            },
        )

    def _renumbered(self, key: CaseKey) -> Iterator[tuple[list[LaunchResult], list[LaunchSummary]]]:
        """Yield each session's launches and summaries of a case, each round with its own number."""
        first = 0
        for session in self.sessions:
            suite, measurement = session.measured()[key]
            yield (
                [
                    msgspec.structs.replace(one, round=first + one.round)
                    for one in measurement.launches
                ],
                [
                    msgspec.structs.replace(row, round=first + row.round)
                    for row in suite.summaries.get(key[1], ())
                ],
            )
            rounds = [one.round for _, case in session.measured().values() for one in case.launches]
            first += 1 + max(rounds, default=0)


def one_side(sessions: Sequence[ComparedSession]) -> ComparedSide:
    """Return the sessions as one side.

    Raises ResultsError if a session is there twice, or if they differ in machine or cases.
    """
    side = ComparedSide(sessions=tuple(sorted(sessions, key=lambda session: session.began)))
    for first, second in itertools.combinations(side.sessions, 2):
        if first.name == second.name or (first.suites and first.suites == second.suites):
            raise ResultsError(
                f"{first.name} and {second.name} are the same session; give each session of a side"
                " once"
            )
        if differences := _differences(first, second):
            raise ResultsError(
                f"{first.name} and {second.name} cannot be one side: {'; '.join(differences)}; give"
                " sessions of the same cases on one machine"
            )
    return side


def _differences(first: ComparedSession, second: ComparedSession) -> list[str]:
    """Return how the two differ in their cases, the work of a case, or the machine."""
    machines = [", ".join(sorted({key for key, _ in one.measured()})) for one in (first, second)]
    if machines[0] != machines[1]:
        return [f"measured on {machines[0] or 'nothing'} and {machines[1] or 'nothing'}"]
    before, after = first.measured(), second.measured()
    found = [f"{case_id} is in one of them" for _, case_id in sorted(before.keys() ^ after.keys())]
    for key in before.keys() & after.keys():
        (suite, one), (other_suite, other) = before[key], after[key]
        if one.case.work() != other.case.work():
            found.append(f"{key[1]} is other work in each")
        machine, other_machine = suite.environment, other_suite.environment
        if machine.pooled_host != other_machine.pooled_host:
            found.append(f"hosts {machine.pooled_host} and {other_machine.pooled_host}")
        found += mismatches(
            machine, other_machine, world_size=one.case.run_ranks, nodes=one.case.nodes
        )
    return list(dict.fromkeys(found))[:3]


# The comparison of two sides, each of one session or several, outside pytest.


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
    alpha: float  # of each verdict
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


def compare_sessions(before: ComparedSide, after: ComparedSide) -> SessionComparison:
    """Judge every case of the sides ``after`` by the side ``before``, of the same machine.

    For two machines see `other_machine.machine_differences`: they get no verdict.
    """
    merged = after.merged()
    gated = sum(
        len(gated_metrics(measurement.case))
        for suite in merged
        for measurement in suite.measurements.values()
    )
    alpha = alpha_per_metric(FALSE_ALARM_RATE, gated)
    return SessionComparison(
        old=before,
        new=after,
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


# The machines of two sides, and how they differ: then no verdict about the code is possible.


def machine_differences(old: ComparedSide, new: ComparedSide) -> tuple[str, ...]:
    """Return how the machines of the two sides differ: accelerator, link, memory, power limit.

    A side that has all accelerators of the other one, and more, is no other machine. A link counts
    if a case that both sides have uses it.
    """
    before, after = old.accelerators(), new.accelerators()
    if not (before.keys() <= after.keys() or after.keys() <= before.keys()):
        names = [
            ", ".join(f"{name} ({key})" for key, name in accelerators.items())
            for accelerators in (before, after)
        ]
        return (f"accelerator {names[0]} → {names[1]}",)
    found = set()
    measured = old.sessions[0].measured(), new.sessions[0].measured()
    for key in measured[0].keys() & measured[1].keys():
        (suite, one), (other, _) = measured[0][key], measured[1][key]
        for name, *values in checked_conditions(
            suite.environment, other.environment, one.case.run_ranks, one.case.nodes
        ):
            if values[0] != values[1]:
                found.add(change_text(name, *values))
    return tuple(sorted(found))
