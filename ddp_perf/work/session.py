"""A session of counting: each case is counted once, judged by what is stored, and stored."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.save import SaveMode
from ddp_perf.config.loading import suite_file
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.verdict import Outcome
from ddp_perf.launch.environment import package_directory
from ddp_perf.system.host.host import current_commit
from ddp_perf.system.host.launch_platform import check_can_launch
from ddp_perf.work.baseline import WorkBaseline, merge_work
from ddp_perf.work.counting import StepCounter, count_case
from ddp_perf.work.judge import judge_work
from ddp_perf.work.store import WorkStore
from ddp_perf.work.values import CountedCase


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """The mode of --save-baseline, and its reason."""

    mode: SaveMode
    reason: str | None = None


class WorkSession:
    """The counted cases of one process. It measures nothing, and needs no quiet machine.

    Several processes may count beside each other, and store into the same files.
    """

    def __init__(
        self,
        counter: StepCounter,
        store: WorkStore,
        *,
        root: Path,
        suites: Sequence[Path] = (),
        import_paths: Sequence[str] = (),
        saving: Saving | None = None,
    ) -> None:
        self._counter = counter
        self._store = store
        self._root = root
        self._suites = tuple(suites)
        self._import_paths = tuple(import_paths)
        self._saving = saving
        self._counted: dict[tuple[str, str], CountedCase | LaunchFailure] = {}

    def check(self, cases: Iterable[Case]) -> None:
        """Check that the cases can be counted here, and that their stored files can be read.

        It starts nothing. Raises LaunchError and BaselineError.
        """
        suites = {case.suite for case in cases}
        if suites:
            check_can_launch()
        for suite in suites:
            for version in self._store.versions(suite):
                self._store.load(suite, version)

    def count(self, case: Case) -> CountedCase | LaunchFailure:
        """Return the case with its counts and the verdict on them, or why there are none.

        The verdict is that by what was stored before; then the counts are stored, if they are to
        be. Raises LaunchError if a rank cannot be started, and BaselineError for a file that cannot
        be read or written.
        """
        if case.key not in self._counted:
            self._counted[case.key] = self._judged(case)
        return self._counted[case.key]

    def other_work(self, case: Case) -> str | None:
        """Return what the step does beyond the stored counts, or None; nothing is stored.

        None as well if this torch has no counts of the case, or if it cannot be counted now. Raises
        LaunchError and BaselineError as `count` does.
        """
        if not self._store.versions(case.suite):
            return None
        torch = self._counter.runtime(case).torch
        if self._store.load(case.suite, torch).of(case) is None:
            return None
        counted = self._compared(case, torch)
        if isinstance(counted, LaunchFailure) or counted.verdict is None:
            return None
        is_other = counted.verdict.outcome is Outcome.REGRESSION
        path = self._store.path(case.suite, torch)
        return f"{path} has other counts: {counted.verdict.reason}" if is_other else None

    def close(self) -> None:
        """End every process that still runs. A second call does nothing."""
        self._counter.close()

    def _judged(self, case: Case) -> CountedCase | LaunchFailure:
        torch = self._counter.runtime(case).torch
        counted = self._compared(case, torch)
        if isinstance(counted, LaunchFailure):
            return counted
        saved = self._save(counted, self._store.load(case.suite, torch), torch)
        return msgspec.structs.replace(counted, saved=saved)

    def _compared(self, case: Case, torch: str) -> CountedCase | LaunchFailure:
        stored = self._store.load_nearest_first(case.suite, torch)
        work = count_case(case, self._counter, self._import_paths)
        if isinstance(work, LaunchFailure):
            return work
        file = suite_file(case.suite, self._suites)
        verdict = judge_work(
            case,
            work,
            stored,
            torch=torch,
            suite_file=file,
            package_differs=package_directory() == self._root.absolute(),
        )
        entries = (baseline.of(case) for baseline in stored)
        before = next((entry.step for entry in entries if entry is not None), None)
        return CountedCase(case=case, work=work, stored=before, verdict=verdict)

    def _save(self, counted: CountedCase, before: WorkBaseline, torch: str) -> str | None:
        """Store the counts if they are to be, and return the file that has them from now on."""
        if self._saving is None:
            return None
        merge = functools.partial(
            merge_work,
            counted=[counted],
            mode=self._saving.mode,
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            commit=current_commit(self._root),
            reason=self._saving.reason,
        )
        if merge(before) == before:
            return None
        self._store.update(counted.case.suite, torch, merge)
        return str(self._store.path(counted.case.suite, torch))
