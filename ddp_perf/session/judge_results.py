"""Results files in the place of a measurement: judged by baselines, stored, or replayed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.save import Saving
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.measurement import Measurement
from ddp_perf.errors import BaselineError, ResultsError
from ddp_perf.render.units import counted, field_changes
from ddp_perf.session.gate.comparability import cases_elsewhere
from ddp_perf.session.gate.explanation import explain_slower_cases
from ddp_perf.session.gate.judge_again import judge_again
from ddp_perf.session.gate.judge_suite import Remedies
from ddp_perf.session.result import Conclusion, SuiteResult, conclude, joined_results
from ddp_perf.session.store_baseline import append, save
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.gpu.gpus import NO_GPUS

# A series of results files is judged by stored baselines, oldest first, and may be appended.


_REMEDIES = Remedies(
    no_such_case="only an older session can judge it (--append stores this one)",
    no_such_figure="only an older session that has it can judge it (--append stores this one)",
)

_APPEND = "only an older session can judge it (ddp-perf judge FILE --append stores this one)"
_ACCEPT = 'ddp-perf baseline promote FILE --mode accept --reason "…" replaces it'
_OF_REPLAY = Remedies(
    no_such_case=_APPEND,
    no_such_figure=_APPEND,
    other_work=_ACCEPT,
    other_structure=_ACCEPT,
    other_machine=_ACCEPT,
)


def _judge(
    store: BaselineStore, key: str, suite: str, remedies: Remedies
) -> Callable[[SuiteResult, Baseline], SuiteResult]:
    """Return what judges sessions of a suite again by a baseline, and by the store's other files.

    Raises BaselineError for a broken file.
    """
    return functools.partial(
        judge_again,
        baseline_path=str(store.path(key)),
        structures=store.work.structures(suite),
        elsewhere=cases_elsewhere(store.relatives(key)),
        remedies=remedies,
    )


class RecordedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One suite of a results file."""

    file: str
    complete: bool  # False: written while the session was still running
    result: SuiteResult

    @property
    def series(self) -> tuple[str, str]:
        """The accelerator and the suite: the sessions with the same ones are one series."""
        return self.result.environment.accelerator_key, self.result.suite

    @property
    def failed(self) -> tuple[LaunchFailure, ...]:
        measurements = self.result.measurements.values()
        return tuple(failure for measured in measurements for failure in measured.failures)

    @property
    def conclusion(self) -> Conclusion:
        result = self.result
        settled = [found for found in result.findings if result.is_resolved(found)]
        unfinished = any(not measured.launches for measured in result.measurements.values())
        return conclude(
            [found for found in result.findings if found not in settled],
            failed=bool(self.failed),
            missing=bool(settled) or unfinished,
        )


class JudgedSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The judged sessions, oldest first."""

    sessions: tuple[RecordedSession, ...]

    @property
    def newest(self) -> list[RecordedSession]:
        """The newest session of each suite and accelerator."""
        return list({session.series: session for session in self.sessions}.values())

    @property
    def conclusion(self) -> Conclusion:
        """The conclusion from the series.

        A regression of any session counts. An older session that was undecided does not: most
        are while a baseline is formed, and the newest one is judged by more.
        """
        if any(session.conclusion is Conclusion.REGRESSION for session in self.sessions):
            return Conclusion.REGRESSION
        if any(session.conclusion is not Conclusion.PASS for session in self.newest):
            return Conclusion.UNDECIDED
        return Conclusion.PASS if self.sessions else Conclusion.UNDECIDED


def judge_results(
    sessions: Iterable[RecordedSession], store: BaselineStore, *, append_each: bool
) -> JudgedSeries:
    """Judge each session by the stored ones that are older, and append it if requested.

    Raises ResultsError or BaselineError before anything is written if a session is there twice,
    or cannot be appended, or if a baseline file is broken.
    """
    ordered = sorted(sessions, key=lambda session: session.result.date)
    _refuse_twice(ordered)
    if append_each:
        for session in ordered:
            _refuse_unfit(session)
    newest = {session.series: session for session in ordered}
    before = {key: store.load(key) for key, _ in newest}
    judges = {series: _judge(store, *series, _REMEDIES) for series in newest}
    after, judged = dict(before), []
    for session in ordered:
        key = session.series[0]
        older = sessions_before(after[key], session.result.date)
        result = judges[session.series](session.result, older)
        if append_each:
            after[key], result = append(result, after[key])
        if session is newest[session.series]:
            explanations = explain_slower_cases(result, older)
            result = msgspec.structs.replace(result, explanations=explanations)
        judged.append(msgspec.structs.replace(session, result=result))
    for key, baseline in after.items():
        if baseline != before[key]:
            change = functools.partial(_unless_changed, before=before[key], after=baseline)
            store.update(key, change)
    return JudgedSeries(sessions=tuple(judged))


def sessions_before(baseline: Baseline, date: str) -> Baseline:
    """Return the baseline as it was before that date: what is newer may contain the session.

    FLOPs and losses that were accepted later are unknown before. Older ones are not kept.
    """
    cases = {}
    for case_id, stored in baseline.cases.items():
        sessions = tuple(session for session in stored.sessions if session.date < date)
        log = tuple(entry for entry in stored.log if entry.date < date)
        if sessions:
            stored = msgspec.structs.replace(stored, sessions=sessions)
            if log != stored.log:
                stored = msgspec.structs.replace(stored, log=log, flops=None, losses={})
            cases[case_id] = stored
    given = tuple(one for one in baseline.acknowledged if one.date < date)
    return msgspec.structs.replace(baseline, cases=cases, acknowledged=given)


def _refuse_twice(sessions: Sequence[RecordedSession]) -> None:
    files: dict[tuple[object, ...], str] = {}
    for session in sessions:
        result = session.result
        identity = (*session.series, result.date, result.environment.host)
        if identity in files:
            raise ResultsError(
                f"{files[identity]} and {session.file} contain the same session, {result.suite} of"
                f" {result.date}; name one of them"
            )
        files[identity] = session.file


def _refuse_unfit(session: RecordedSession) -> None:
    if not session.complete:
        raise BaselineError(
            f"{session.file}: it was written while its session was still running; leave it out, or"
            " judge it without --append"
        )
    _refuse_injections(session.result)


def _refuse_injections(result: SuiteResult) -> None:
    if result.injections:
        raise BaselineError(
            f"{result.suite}: ranks that --ddp-inject slowed give no baseline"
            f" ({', '.join(result.injections)})"
        )


def _unless_changed(now: Baseline, *, before: Baseline, after: Baseline) -> Baseline:
    """Return ``after``. Raise BaselineError if another process stored something meanwhile."""
    if now != before:
        raise BaselineError(
            f"{now.accelerator}: another process stored a session while these were judged, so none"
            " of them was appended; run the command again"
        )
    return after


def promote(result: SuiteResult, store: BaselineStore, saving: Saving) -> SuiteResult:
    """Judge a stored result again, store it, and return it with what was saved and refused.

    Today's baseline judges it, since sessions were stored after it was measured.

    Raises BaselineError if its ranks were slowed on purpose, or the file cannot be written.
    """
    _refuse_injections(result)
    key = result.environment.accelerator_key
    baseline = store.load(key)
    judged = _judge(store, key, result.suite, Remedies())(result, baseline)
    return save(judged, judged.measurements, baseline, store, saving, is_recorded=True)


# The sessions of a results file in the place of measured ones: ``--ddp-launcher replay:FILE``.


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A results file, which has a session of each suite."""

    path: Path
    complete: bool  # False: its session did not end
    suites: dict[str, SuiteResult]

    def obstacle(self, case: Case) -> str | None:
        """Return why a case cannot be replayed, or None if it can."""
        recorded = self.suites.get(case.suite)
        measured = recorded.measurements.get(case.id) if recorded is not None else None
        if measured is None or not _was_launched(measured):
            return f"{self.path} has no launch of it"
        then, now = measured.case.work(), case.work()
        if changes := field_changes(then, now, sorted(then.keys() | now.keys())):
            return f"{self.path} has launches of other work: {', '.join(changes)}"
        return None

    def capacity(self) -> RecordedCapacity:
        """Return the capacity of its machine."""
        suites = self.suites.values()
        machines = [suite.machine for suite in suites if suite.machine is not None]
        cores = [one.environment.accelerator_count for one in suites if one.tier == "cpu"]
        return RecordedCapacity(
            machine=machines[0] if machines else NO_GPUS,
            cores=max(cores, default=0),
            each_node=any(suite.environment.alike_nodes for suite in suites),
            recording=self,
        )

    def line(self, suite: str) -> str:
        """Return the line that tells where and when the suite was measured."""
        result = self.suites[suite]
        here, settled = result.environment, len(result.settled)
        return (
            f"{suite}: replayed from {self.path}; measured on {here.host} ({here.accelerator}) on"
            f" {result.date[:10]}{'' if self.complete else '; its session did not end'}"
            + (f"; settled then, and not here: {counted(settled, 'case')}" if settled else "")
        )

    def judge(self, suite: str, cases: Sequence[Case], store: BaselineStore) -> SuiteResult:
        """Return the session of a suite, judged and explained by the stored ones that are older.

        The tolerances and targets are those of ``cases``, the schedule and the launcher those of
        the launches. Raises BaselineError.
        """
        result = self.suites[suite]
        key = result.environment.accelerator_key
        older = sessions_before(store.load(key), result.date)
        now = {case.id: case for case in cases if case.suite == suite}
        measurements = {
            case_id: msgspec.structs.replace(measured, case=_as_launched(now[case_id], measured))
            if case_id in now and self.obstacle(now[case_id]) is None
            else measured
            for case_id, measured in result.measurements.items()
        }
        result = msgspec.structs.replace(result, measurements=measurements)
        judged = _judge(store, key, suite, _OF_REPLAY)(result, older)
        return msgspec.structs.replace(judged, explanations=explain_slower_cases(judged, older))


class RecordedCapacity(Capacity, frozen=True, kw_only=True):
    """The machine of a recording: it can run what it ran."""

    recording: Recording

    def obstacle(self, case: Case) -> str | None:
        return self.recording.obstacle(case)

    def fits(self, case: Case) -> bool:
        return self.obstacle(case) is None

    def is_too_old(self, case: Case) -> bool:
        return False

    def accelerator_key(self, tier: str) -> str:
        """Return the name of the recorded machine's baseline file; of another tier, this one's."""
        for result in self.recording.suites.values():
            if result.tier == tier:
                return result.environment.accelerator_key
        return super().accelerator_key(tier)


def read_recording(path: Path) -> Recording:
    """Read a results file. Raises ResultsError, also if nothing in it was measured."""
    file = joined_results([path])
    measured = [one for suite in file.suites for one in suite.measurements.values()]
    if not any(map(_was_launched, measured)):
        raise ResultsError(f"{path}: it has no launch; name the results of a measured session")
    suites = {suite.suite: suite for suite in file.suites}
    return Recording(path=path, complete=file.complete, suites=suites)


def _was_launched(measured: Measurement) -> bool:
    return bool(measured.launches or measured.failures)


def _as_launched(case: Case, measured: Measurement) -> Case:
    before = measured.case
    return msgspec.structs.replace(case, schedule=before.schedule, launcher=before.launcher)
