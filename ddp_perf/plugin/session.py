"""One pytest session: its plan, and the measurement of each suite at the first item's request."""

from __future__ import annotations

import collections
import contextlib
import functools
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec
import pytest

from ddp_perf.baselines.save import Saving
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.case import Case
from ddp_perf.core.injection import check_applicable
from ddp_perf.core.published import PublishedTable
from ddp_perf.core.target import Target
from ddp_perf.errors import BaselineError, DdpPerfError, LaunchError
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.plugin.against.session import make_against
from ddp_perf.plugin.items import counting_command
from ddp_perf.plugin.options import Options
from ddp_perf.plugin.outputs import SessionFiles
from ddp_perf.plugin.plan import SessionPlan, Setup, plan_session
from ddp_perf.plugin.progress import TerminalProgress
from ddp_perf.plugin.requested import RequestedCases
from ddp_perf.plugin.settling import session_code
from ddp_perf.plugin.source import Measured, Notes, Recorded, Source, read_recorded
from ddp_perf.render.units import counted
from ddp_perf.session.gate.published import targets_of
from ddp_perf.session.measure.machine import Launchers
from ddp_perf.session.measure.nights import tonight
from ddp_perf.session.measure.rounds import SessionOptions
from ddp_perf.session.result import SuiteResult
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.work.session import WorkSession
from ddp_perf.work.values import CountedCase

if TYPE_CHECKING:
    from ddp_perf.session.measure.suite import SuiteRequest


class Commands(msgspec.Struct, frozen=True, kw_only=True):
    """The shell commands that measure again."""

    session: str = ""
    cases: dict[tuple[str, str], str] = {}  # by suite and id of the case

    def of_suite(self, suite: str) -> dict[str, str]:
        return {case_id: command for (of, case_id), command in self.cases.items() if of == suite}


class SessionEnd(msgspec.Struct, kw_only=True):
    """The early end of the measurement, if any, and the line about the audit."""

    interruption: str | None = None  # where Ctrl-C or SIGTERM ended the measurement
    by_sigterm: bool = False
    audit_line: str | None = None


class DdpSession:
    """The state of one pytest session, in the config's stash for fixtures and terminal hooks."""

    def __init__(
        self,
        config: pytest.Config,
        options: Options,
        cases: Sequence[Case],
        *,
        suites: Sequence[Path] = (),
    ) -> None:
        progress = TerminalProgress(config)
        launchers = Launchers(options.cluster, on_wait=progress.warn)
        recording = read_recorded(options.replay)
        if recording is not None:
            found: Capacity = recording.capacity()
        else:
            found = _find_capacity(cases, launchers, collecting=config.option.collectonly)
        cluster = options.cluster
        self.setup = setup = Setup(
            options=options,
            root=config.rootpath,
            suites=tuple(suites),
            cases=tuple(cases),
            capacity=msgspec.structs.replace(
                found, pool=options.machine, nodes=cluster.nodes, each_node=cluster.each_node
            ),
            store=BaselineStore(options.baseline_directory),
            progress=progress,
        )
        self._source: Source = (
            Recorded(setup, recording)
            if recording is not None
            else Measured(
                setup,
                launchers,
                code=functools.partial(session_code, config, options),
                on_sigterm=self._end_by_sigterm,
            )
        )
        self.plan = SessionPlan(
            night=tonight(cases, setup.capacity.fits) if options.rotates else None
        )
        self.requested = RequestedCases()
        self.results: dict[str, SuiteResult] = {}
        self.end = SessionEnd()
        self.commands = Commands()
        self.files = SessionFiles(
            options, setup.store, root=config.rootpath, counting=counting_command(config)
        )
        self.work = WorkSession(
            ServerLauncher(),  # whatever launcher measures: a step is counted on this machine
            setup.store.work,
            root=config.rootpath,
            suites=suites,
            import_paths=options.import_paths,
            saving=_saving(options.session),
        )
        self.against = make_against(setup, on_sigterm=self._end_by_sigterm)
        self._errors: dict[str, str] = {}  # by suite
        self._judged: set[tuple[str, str]] = set()  # suite and id of each measured case

    @property
    def options(self) -> Options:
        return self.setup.options

    @property
    def capacity(self) -> Capacity:
        return self.setup.capacity

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.setup.cases

    @functools.cached_property
    def names(self) -> dict[str, Case]:
        """The cases by id, with the suite's name before an id that two tiers share."""
        count = collections.Counter(case.id for case in self.cases)
        return {
            case.id if count[case.id] == 1 else f"{case.suite}-{case.id}": case
            for case in self.cases
        }

    def make_plan(self, wanted: Sequence[Case], *, and_any: bool) -> None:
        """Record the cases that the selected items need, suite by suite, in the files' order.

        ``and_any`` is True if an item may request any case of the suites while it runs.

        This reads baselines and data, and checks that what is to be stored can be written, so that
        a mistake is refused before the first launch.
        Raises LaunchError if this system cannot launch ranks, BaselineError, DataError,
        HistoryError, SideError, and ConfigError for an injection that applies to no case.
        """
        check_applicable(self.options.injections, self.cases if and_any else wanted)
        self.plan = plan = plan_session(self.setup, wanted, and_any=and_any, night=self.plan.night)
        self._source.check(plan, wanted=bool(wanted) or and_any)
        if self.against is not None:
            self.against.plan(plan.cases)
            return  # baselines are not read
        saves = self.options.session.save_mode is not None
        plan.read_baselines(self.setup)
        if saves:
            self.work.check(case for case in plan.possible if case.trains)
        if plan.possible:
            self.files.history.check()
        if plan.possible and saves:
            self.setup.store.check_storable()

    @property
    def errors(self) -> list[str]:
        """The outputs that could not be written. Each of them fails the session."""
        return [*self.files.errors, *(self.against.report.errors if self.against else [])]

    @property
    def lines(self) -> list[str]:
        """A line for each file that was written, for the end of the terminal's summary."""
        return [*(self.against.report.lines if self.against else []), *self.files.lines]

    def targets(self) -> Iterator[tuple[str, Case, str, Target]]:
        """Yield the name and case of each target on this machine, with its metric."""
        published: dict[str, tuple[PublishedTable, ...]] = {}  # by the accelerator's key
        for name, case in self.names.items():
            key = self.capacity.accelerator_key(case.tier)
            if key not in published:
                published[key] = ()
                with contextlib.suppress(BaselineError):  # `make_plan` refuses a broken file
                    published[key] = self.setup.store.load(key).published
            for metric, target in targets_of(case, key, published[key]).items():
                yield name, case, metric, target

    def result(self, suite: str) -> SuiteResult:
        """Return the suite's result with all its planned cases; measure them at the first call.

        Raises DdpPerfError, also for an error that is not the user's, with its traceback; and the
        same error again for every later item of the suite.
        """
        return self._result(suite, self.plan.by_suite[suite])

    def measure(self, case: Case) -> SuiteResult:
        """Return the result of the case's suite, with this case even if it was not planned.

        The one-rank case that its scaling is computed from is measured with it. Raises the same
        errors as ``result``.
        """
        wanted = [c for c in self.cases if c.suite == case.suite and c.id in (case.single, case.id)]
        self.plan.add(wanted)
        return self._result(case.suite, wanted)

    def owes(self, case: Case) -> bool:
        """Return whether a strict session must fail because the case cannot run here.

        A case is excused if it needs more GPUs than the machine is expected to have, or another
        type of GPU, or several nodes that are to be measured one by one; all of it only if another
        case can be measured: a session that measures nothing at all never passes.
        """
        if not self.plan.cases:
            return True
        expected, cluster = self.options.expect_devices, self.options.cluster
        if self.capacity.is_too_old(case) or (cluster.each_node and case.nodes > 1):
            return False
        return expected is None or case.tier == "cpu" or case.run_per_node <= expected

    def audit(self) -> None:
        """Run the audit, if one is wanted and a suite was measured. The machine is still leased."""
        if self.options.audit:
            keep = self.files.history.append_audit
            self.end.audit_line = self._source.audit(self.results, keep)

    def close(self, *, began: bool, counted: Sequence[CountedCase]) -> None:
        """End the ranks, free the machine, and write the results.

        A requested report is written even if nothing was measured, so that the report of an
        earlier session is not mistaken for this one; that of ``counted`` cases is another one.
        ``began`` is False if pytest refused to run; then the earlier report stays.
        """
        try:
            self._source.close()
        finally:
            self.work.close()
        if self.against is not None:
            self.against.close()
        elif self.results or (self.files.report.is_wanted and began and not counted):
            self.results = {
                name: self.requested.in_result(row) for name, row in self.results.items()
            }
            complete = self._judged == {case.key for case in self.plan.cases}
            self.files.write(self.results, complete=complete and self._source.is_complete)
        self.files.close(counted, self.capacity.accelerator_key("gpu"))

    def _result(self, suite: str, wanted: Sequence[Case]) -> SuiteResult:
        if suite in self._errors:
            raise DdpPerfError(self._errors[suite])
        missing = [case for case in wanted if (suite, case.id) not in self._judged]
        if missing:
            try:
                self.results[suite] = self._measure(suite, missing)
            except (KeyboardInterrupt, pytest.exit.Exception):
                self.end.interruption = self._interruption(suite, missing)
                raise
            except DdpPerfError as error:
                self._errors[suite] = str(error)
                raise
            except Exception as error:  # noqa: BLE001 – a full disk, or a defect; raised as undecided
                what = "".join(traceback.format_exception_only(error)).strip()
                self._errors[suite] = f"{suite} could not be measured to its end: {what}"
                raise DdpPerfError(
                    f"{self._errors[suite]}\n{''.join(traceback.format_exception(error))}"
                ) from None
        return self.results[suite]

    def _interruption(self, suite: str, cases: Sequence[Case]) -> str:
        """Describe how far these cases of the suite were measured, and what is not stored."""
        lacking, kept = [], ""
        if not self._judged.issuperset(case.key for case in cases):
            lacking.append("not judged")
        mode, result = self.options.session.save_mode, self.results.get(suite)
        if mode is not None and (result is None or not result.saved):
            lacking.append(f"not stored (--save-baseline={mode})")
        elif mode is not None and result is not None and lacking:
            kept = f"; the first session of {counted(len(result.saved), 'case')} is stored"
        what = f": {suite} is {' and '.join(lacking)}{kept}; run it again" if lacking else ""
        return f"interrupted {self.setup.progress.how_far()}{what}"

    def _measure(self, suite: str, cases: Sequence[Case]) -> SuiteResult:
        notes = Notes(
            on_partial=self._note_partial,
            on_judged=functools.partial(self._note_judged, cases),
            other_work=self._other_work,
        )
        return self._source.measure(suite, functools.partial(self._request, suite, cases), notes)

    def _request(self, suite: str, cases: Sequence[Case]) -> SuiteRequest:
        # Imported here: judging needs scipy, a third of a second that collection can do without.
        from ddp_perf.session.measure.suite import SuiteRequest
        from ddp_perf.stats.rule.error_rate import OF_SESSION, alpha_per_metric

        rate, options = self.options.false_alarm_rate, self.options
        if options.settle_s:  # the second stage has the rest
            rate *= OF_SESSION
        of_suite = [case for case in self.cases if case.suite == suite]
        return SuiteRequest(
            suite=suite,
            cases=tuple(cases),
            requested=self.requested.of_suite(suite),
            earlier=self.results.get(suite),
            reported=frozenset(case.id for case in of_suite if not self.plan.gates(case)),
            alpha=alpha_per_metric(rate, self.plan.gated),
            options=options.session,
            command=self.commands.session,
            commands=self.commands.of_suite(suite),
        )

    def _other_work(self, case: Case) -> str | None:
        """Return what the step does beyond its stored counts; None also if it cannot be counted."""
        try:
            return self.work.other_work(case)
        except LaunchError:
            return None

    def _end_by_sigterm(self) -> NoReturn:
        """End the session as Ctrl-C does: results are written."""
        self.end.by_sigterm = True
        how_far = (self.setup.progress if self.against is None else self.against).how_far()
        pytest.exit(f"ended by SIGTERM {how_far}")

    def _note_judged(self, cases: Sequence[Case], result: SuiteResult) -> None:
        """Mark the cases as measured, whatever fails from here on."""
        self._judged |= {case.key for case in cases}
        self._note_partial(result)
        self.files.history.append(result)

    def _note_partial(self, result: SuiteResult) -> None:
        self.results[result.suite] = result
        self.files.write_results(self.results, complete=False)


def _find_capacity(cases: Sequence[Case], launchers: Launchers, *, collecting: bool) -> Capacity:
    """Return the capacity of the machine on which ranks run: a node of Kubernetes, or this one."""
    elsewhere = any(case.launcher == "kubernetes" for case in cases)
    return launchers.node_capacity() if elsewhere and not collecting else find_capacity()


def _saving(options: SessionOptions) -> Saving | None:
    mode = options.save_mode
    return None if mode is None else Saving(mode=mode, reason=options.reason)


SESSION = pytest.StashKey[DdpSession]()
