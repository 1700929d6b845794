"""One pytest session: what was planned, and each suite measured when its first item asks."""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.case import Case
from ddp_perf.core.injection import check_applicable
from ddp_perf.core.metric import gated_metrics
from ddp_perf.errors import DdpPerfError
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.plugin.options import Options
from ddp_perf.plugin.outputs import HistoryLog, ReportWriter
from ddp_perf.plugin.progress import TerminalProgress
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.results_file import write_results
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.host.launch_platform import check_can_launch
from ddp_perf.system.host.termination import sigterm_calls
from ddp_perf.system.lease import machine_lease
from ddp_perf.workloads.corpus import check_texts

_LEASE_PATIENCE_S = 600


class DdpSession:
    """Kept in the config's stash; fixtures and terminal hooks read it."""

    def __init__(self, config: pytest.Config, options: Options, cases: Sequence[Case]) -> None:
        self.options = options
        self.cases = cases
        self.names = _names(cases)
        self.capacity: Capacity = find_capacity()
        self.results: dict[str, SuiteResult] = {}
        self.write_error: str | None = None
        self.report = ReportWriter(
            options.report, options.json_path, options.history, config.rootpath
        )
        self.commands: dict[tuple[str, str], str] = {}  # by suite and case id
        self.history = HistoryLog(options.history, config.rootpath)
        self._root: Path = config.rootpath
        self._planned: dict[str, list[Case]] = {}
        self._errors: dict[str, str] = {}
        self._judged: set[tuple[str, str]] = set()  # suite and id of each case that is done
        self._gated = 0  # verdicts that share the session's false-alarm budget
        self._store = BaselineStore(options.baseline_directory)
        self._progress = TerminalProgress(config)
        self._resources = contextlib.ExitStack()
        self._launcher: ForkserverLauncher | None = None

    def plan(self, wanted: Sequence[Case], *, and_any: bool) -> None:
        """Note what the selected items need, suite by suite, in the order of the files.

        ``and_any``: some of them may ask for any case of the suites while they run.
        Reads baselines and data, so that a broken file is refused before anything is launched.
        Raises LaunchError on a system where nothing can be launched, BaselineError, DataError,
        HistoryError, and ConfigError for an injection that none can have.
        """
        if wanted or and_any:
            check_can_launch()
        check_applicable(self.options.injections, self.cases if and_any else wanted)
        ids = {case.key for case in wanted}
        possible = []
        for case in self.cases:
            if self.capacity.obstacle(case) is not None:
                continue
            if case.key in ids:
                self._planned.setdefault(case.suite, []).append(case)
            if case.key in ids or and_any:
                possible.append(case)
        self._gated = sum(len(gated_metrics(case)) for case in possible)
        check_texts(possible)
        for suite in {case.suite for case in possible}:
            self._store.load_structures(suite)
        for tier in {case.tier for case in possible}:
            self._store.load(self.capacity.accelerator_key(tier))
        if possible:
            self.history.check()

    @property
    def errors(self) -> list[str]:
        """What could not be written: each fails the session."""
        problems = [self.write_error, self.history.error, *self.report.errors]
        return [problem for problem in problems if problem]

    def result(self, suite: str) -> SuiteResult:
        """The suite's result, with all that was planned of it; measured now if it was not yet.

        Raises DdpPerfError, and the same again for every later item of the suite.
        """
        return self._result(suite, self._planned[suite])

    def measure(self, case: Case) -> SuiteResult:
        """The result of the case's suite with this case in it, planned or not, and the
        one-rank case that its scaling is told from. Raises as ``result`` does.
        """
        wanted = [c for c in self.cases if c.suite == case.suite and c.id in (case.single, case.id)]
        planned = self._planned.setdefault(case.suite, [])
        planned += [case for case in wanted if case not in planned]
        return self._result(case.suite, wanted)

    def owes(self, suite: str) -> bool:
        """Whether a strict session is red for the suite: no planned case of it can run here.

        A suite owes nothing whose smallest case takes more GPUs than the machine is expected to
        have, as long as another suite can be measured: a session without any figure is no pass.
        """
        expected = self.options.expect_devices
        if self._planned.get(suite):
            return False
        if expected is None or not any(self._planned.values()):
            return True
        cases = [case for case in self.cases if case.suite == suite]
        return any(case.tier == "cpu" or case.world_size <= expected for case in cases)

    def close(self, *, began: bool) -> None:
        """End the ranks, free the machine, and write what was measured.

        Where a report is wanted, also that nothing was: yesterday's must not stand for today.
        ``began``: False where pytest refused to run; there is no today then.
        """
        self._resources.close()
        self._launcher = None
        if self.results or (self.report.is_wanted and began):
            planned = {case.key for row in self._planned.values() for case in row}
            complete = self._judged == planned
            self._write(complete=complete)
            self.report.write(list(self.results.values()), complete=complete)
        self.history.close()

    def _result(self, suite: str, wanted: Sequence[Case]) -> SuiteResult:
        if suite in self._errors:
            raise DdpPerfError(self._errors[suite])
        missing = [case for case in wanted if (suite, case.id) not in self._judged]
        if missing:
            try:
                self.results[suite] = self._measure(suite, missing)
            except DdpPerfError as error:
                self._errors[suite] = str(error)
                raise
        return self.results[suite]

    def _measure(self, suite: str, cases: Sequence[Case]) -> SuiteResult:
        # Here, since judging needs scipy: a third of a second that collection need not pay.
        from ddp_perf.session.measure.suite import SuiteRequest, run_suite
        from ddp_perf.stats.rule.alpha_spending import alpha_per_metric

        if self._launcher is None:
            self._resources.enter_context(
                machine_lease(
                    patience_s=_LEASE_PATIENCE_S,
                    on_wait=self._progress.warn,
                    gpus=self.capacity.machine.gpus,
                )
            )
            self._launcher = self._resources.enter_context(contextlib.closing(ForkserverLauncher()))
            self._resources.enter_context(sigterm_calls(self._end_by_sigterm))
        return run_suite(
            SuiteRequest(
                suite=suite,
                cases=tuple(cases),
                earlier=self.results.get(suite),
                alpha=alpha_per_metric(self.options.false_alarm_rate, self._gated),
                budget_s=self.options.budget_s,
                explain_budget_s=self.options.explain_budget_s,
                save_mode=self.options.save_mode,
                reason=self.options.reason,
                commands={
                    case_id: command
                    for (of, case_id), command in self.commands.items()
                    if of == suite
                },
                injections=self.options.injections,
                root=self._root,
                import_paths=self.options.import_paths,
                profile_steps=self.options.profile_steps,
            ),
            capacity=self.capacity,
            launcher=self._launcher,
            store=self._store,
            progress=self._progress,
            on_partial=self._note_partial,
            on_judged=functools.partial(self._note_judged, cases),
        )

    def _end_by_sigterm(self) -> NoReturn:
        """End as Ctrl-C does: what was measured is written, and the exit code is pytest's 2."""
        pytest.exit(f"ended by SIGTERM {self._progress.how_far()}")

    def _note_judged(self, cases: Sequence[Case], result: SuiteResult) -> None:
        """Whatever fails from here on, these are measured."""
        self._judged |= {case.key for case in cases}
        self._note_partial(result)
        self.history.append(result)

    def _note_partial(self, result: SuiteResult) -> None:
        self.results[result.suite] = result
        self._write(complete=False)

    def _write(self, *, complete: bool) -> None:
        """A file that cannot be written must not end a measurement; it fails the session."""
        path = self.options.json_path
        if path is None:
            return
        try:
            write_results(path, list(self.results.values()), complete=complete)
            self.write_error = None
        except OSError as error:
            self.write_error = f"--ddp-json: {path} cannot be written: {error.strerror}"


def _names(cases: Sequence[Case]) -> dict[str, Case]:
    """Each case by its id, with the suite's name before it where two tiers have one of that id."""
    count = collections.Counter(case.id for case in cases)
    return {case.id if count[case.id] == 1 else f"{case.suite}-{case.id}": case for case in cases}


SESSION = pytest.StashKey[DdpSession]()
