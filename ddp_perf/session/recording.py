"""The sessions of a results file in the place of measured ones: ``--ddp-launcher replay:FILE``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import Measurement
from ddp_perf.errors import ResultsError
from ddp_perf.render.units import counted, field_changes
from ddp_perf.session.judge_results import judge_by_older
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.results_file import joined_results
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.gpu.gpus import NO_GPUS


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
        """Return the session of a suite, judged by the stored sessions that are older.

        The tolerances and targets are those of ``cases``, the schedule and the launcher those of
        the launches. Raises BaselineError.
        """
        result = self.suites[suite]
        now = {case.id: case for case in cases if case.suite == suite}
        measurements = {
            case_id: msgspec.structs.replace(measured, case=_as_launched(now[case_id], measured))
            if case_id in now and self.obstacle(now[case_id]) is None
            else measured
            for case_id, measured in result.measurements.items()
        }
        return judge_by_older(msgspec.structs.replace(result, measurements=measurements), store)


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
