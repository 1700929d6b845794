"""One side of a comparison: one results file of a state of the code, or several."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.errors import ResultsError
from ddp_perf.session.gate.comparability import mismatches
from ddp_perf.session.result import SuiteResult

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
            machine, other_machine, world_size=one.case.world_size, nodes=one.case.nodes
        )
    return list(dict.fromkeys(found))[:3]
