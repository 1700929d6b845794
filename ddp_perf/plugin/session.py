"""One pytest session: what was planned, and each suite measured when its first item asks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.case import Case
from ddp_perf.core.injection import check_applicable
from ddp_perf.core.metric import gated_metrics
from ddp_perf.errors import DdpPerfError
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.plugin.options import Options
from ddp_perf.plugin.progress import TerminalProgress
from ddp_perf.report.results import write_results
from ddp_perf.session.result import SuiteResult
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.lease import machine_lease

_LEASE_PATIENCE_S = 600


class DdpSession:
    """Kept in the config's stash; fixtures and terminal hooks read it."""

    def __init__(self, config: pytest.Config, options: Options, cases: Sequence[Case]) -> None:
        self.options = options
        self.cases = cases
        self.capacity: Capacity = find_capacity()
        self.results: dict[str, SuiteResult] = {}
        self.write_error: str | None = None
        self._root: Path = config.rootpath
        added = [str(path) for path in config.getini("pythonpath")]  # as pytest itself does
        self._import_paths = (str(self._root), *added)
        self._planned: dict[str, list[Case]] = {}
        self._errors: dict[str, str] = {}
        self._judged: set[str] = set()  # suites that are done, whatever came of them
        self._store = BaselineStore(options.baseline_directory)
        self._progress = TerminalProgress(config)
        self._resources = contextlib.ExitStack()
        self._launcher: ForkserverLauncher | None = None

    def plan(self, wanted: Sequence[Case]) -> None:
        """Note what the selected items need, suite by suite, in the order of the files.

        Reads the baselines, so that a broken file is refused before anything is launched.
        Raises BaselineError, and ConfigError for an injection that none of them can have.
        """
        check_applicable(self.options.injections, wanted)
        ids = {(case.suite, case.id) for case in wanted}
        for case in self.cases:
            if (case.suite, case.id) in ids and self.capacity.obstacle(case) is None:
                self._planned.setdefault(case.suite, []).append(case)
        for tier in {case.tier for cases in self._planned.values() for case in cases}:
            self._store.load(self.capacity.accelerator_key(tier))

    def result(self, suite: str) -> SuiteResult:
        """The suite's result; measured now if it was not yet.

        Raises DdpPerfError, and the same again for every later item of the suite.
        """
        if suite in self._errors:
            raise DdpPerfError(self._errors[suite])
        if suite not in self._judged:
            try:
                self.results[suite] = self._measure(suite)
                self._judged.add(suite)
            except DdpPerfError as error:
                self._errors[suite] = str(error)
                raise
        return self.results[suite]

    def can_measure(self, suite: str) -> bool:
        """Whether this machine can run any planned case of the suite."""
        return bool(self._planned.get(suite))

    def close(self) -> None:
        """End the ranks, free the machine, and write what was measured."""
        self._resources.close()
        self._launcher = None
        if self.results:
            self._write(complete=self._judged == self._planned.keys())

    def _measure(self, suite: str) -> SuiteResult:
        # Here, since judging needs scipy: a third of a second that collection need not pay.
        from ddp_perf.session.suite import SuiteRequest, run_suite
        from ddp_perf.stats.budget import alpha_per_metric

        if self._launcher is None:
            self._resources.enter_context(
                machine_lease(
                    patience_s=_LEASE_PATIENCE_S,
                    on_wait=self._progress.warn,
                    gpus=self.capacity.machine.gpus,
                )
            )
            self._launcher = self._resources.enter_context(contextlib.closing(ForkserverLauncher()))
        return run_suite(
            SuiteRequest(
                suite=suite,
                cases=tuple(self._planned[suite]),
                alpha=alpha_per_metric(self.options.false_alarm_rate, self._gated()),
                budget_s=self.options.budget_s,
                save_mode=self.options.save_mode,
                reason=self.options.reason,
                injections=self.options.injections,
                root=self._root,
                import_paths=self._import_paths,
            ),
            capacity=self.capacity,
            launcher=self._launcher,
            store=self._store,
            progress=self._progress,
            on_partial=self._note_partial,
        )

    def _gated(self) -> int:
        """How many verdicts of this session share its false-alarm budget."""
        return sum(len(gated_metrics(case)) for cases in self._planned.values() for case in cases)

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


SESSION = pytest.StashKey[DdpSession]()
