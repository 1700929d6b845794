"""One pytest session: its plan, and the measurement of each suite at the first item's request."""

from __future__ import annotations

import collections
import contextlib
import functools
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec
import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case, Tier
from ddp_perf.core.injection import check_applicable
from ddp_perf.core.metric import gated_metrics
from ddp_perf.core.published import PublishedTable
from ddp_perf.core.target import Target
from ddp_perf.errors import BaselineError, DdpPerfError, LaunchError
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.plugin.against.running import make_against
from ddp_perf.plugin.auditing import audit_session
from ddp_perf.plugin.each_node import check_nodes, check_pool
from ddp_perf.plugin.options import Options
from ddp_perf.plugin.outputs import HistoryLog, ReportWriter
from ddp_perf.plugin.progress import TerminalProgress
from ddp_perf.plugin.settling import make_settling, session_code
from ddp_perf.plugin.work.report import WorkReportWriter
from ddp_perf.render.units import counted, without_figures
from ddp_perf.session.audit.draw import is_auditable
from ddp_perf.session.gate.published import targets_of
from ddp_perf.session.measure.bench import Bench, Policy
from ddp_perf.session.measure.launchers import Launchers
from ddp_perf.session.measure.machine import open_machine
from ddp_perf.session.measure.nights import night_length, tonight
from ddp_perf.session.measure.rounds import audit_length, further_length, session_length
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.results_file import write_results
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.host.launch_platform import check_can_launch
from ddp_perf.work.session import Saving, WorkSession
from ddp_perf.work.store import WorkStore
from ddp_perf.work.values import CountedCase
from ddp_perf.workloads.corpus import check_texts

if TYPE_CHECKING:
    from ddp_perf.core.baseline import Baseline
    from ddp_perf.core.gate_audit import GateAudit
    from ddp_perf.session.audit.draw import HiddenSlowDown
    from ddp_perf.session.measure.code import SessionCode
    from ddp_perf.session.measure.second_stage import Settle
    from ddp_perf.session.recording import Recording


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
        self.options = options
        self.cases = cases
        self.names = _names(cases)
        self._progress = TerminalProgress(config)
        self._launchers = Launchers(
            options.cluster, root=config.rootpath, on_wait=self._progress.warn
        )
        self._recording = _recording(options.replay)
        self.capacity: Capacity = self._find_capacity(collecting=config.option.collectonly)
        self.night = tonight(cases, self.capacity.fits) if options.rotates else None
        self.results: dict[str, SuiteResult] = {}
        self.write_error: str | None = None
        self.other_error: str | None = None  # of a file that another plugin writes
        self.interruption: str | None = None  # where Ctrl-C or SIGTERM ended the measurement
        self.is_terminated = False  # by SIGTERM
        self.report = ReportWriter(
            options.report, options.json_path, options.history, config.rootpath
        )
        self._shown: set[tuple[tuple[str, str], str]] = set()  # of which case what is in a report
        self._reasons: set[str] = set()  # of verdicts, without their figures, that are in a report
        self.command = ""  # the shell command that measures the session again
        self.commands: dict[tuple[str, str], str] = {}  # by suite and case id
        self.history = HistoryLog(options.history, config.rootpath)
        self._root: Path = config.rootpath
        self._config = config
        self._suites = tuple(suites)
        self._planned: dict[str, list[Case]] = {}
        self._errors: dict[str, str] = {}
        self._judged: set[tuple[str, str]] = set()  # suite and id of each measured case
        # By suite and id of each case that a test requests: the metrics that tests assert.
        self._asserted: dict[tuple[str, str], set[str]] = {}
        self.audit_line: str | None = None  # what became of the session's audit
        self._baselines: dict[Tier, Baseline] = {}  # before the session
        self._length = ""  # of a session of several suites, of a night, or with an audit
        self._gated = 0  # verdicts that share the session's false-alarm budget
        self._possible = 0  # cases that share it in the second stage
        self._store = BaselineStore(options.baseline_directory)
        self._published: dict[str, tuple[PublishedTable, ...]] = {}  # by the accelerator's key
        self.work = WorkSession(
            ForkserverLauncher(),  # whatever launcher measures: a step is counted on this machine
            WorkStore(options.baseline_directory),
            root=config.rootpath,
            suites=suites,
            import_paths=options.import_paths,
            saving=_saving(options.policy),
        )
        self._work_report = WorkReportWriter(
            options.report, self._store, root=config.rootpath, import_paths=options.import_paths
        )
        self.against = make_against(
            options,
            self.capacity,
            self._progress,
            root=config.rootpath,
            suites=suites,
            on_sigterm=self._end_by_sigterm,
        )
        self._resources = contextlib.ExitStack()
        self._resources.callback(self._launchers.close)
        self._resources.callback(self.work.close)
        self._bench: Bench | None = None

    def _find_capacity(self, *, collecting: bool) -> Capacity:
        """Return the capacity of the machine on which ranks run, or ran: a node of Kubernetes, that
        of a recording, or this.
        """
        if self._recording is not None:
            return self._recording.capacity()
        elsewhere = any(case.launcher == "kubernetes" for case in self.cases)
        found = self._launchers.node_capacity() if elsewhere and not collecting else find_capacity()
        cluster = self.options.cluster
        return msgspec.structs.replace(
            found, pool=self.options.machine, nodes=cluster.nodes, each_node=cluster.each_node
        )

    def plan(self, wanted: Sequence[Case], *, and_any: bool) -> None:
        """Record the cases that the selected items need, suite by suite, in the files' order.

        ``and_any`` is True if an item may request any case of the suites while it runs.

        This reads baselines and data, and checks that what is to be stored can be written, so that
        a mistake is refused before the first launch.
        Raises LaunchError if this system cannot launch ranks, BaselineError, DataError,
        HistoryError, SideError, and ConfigError for an injection that applies to no case.
        """
        if self._recording is None and (wanted or and_any):
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
        if self._recording is None and self.options.cluster.each_node:
            check_pool(self.options.machine, possible)
        if self._recording is None:
            check_texts(possible)
        if self.against is not None:
            self.against.plan(self._all_planned)
            return  # baselines are not read
        gating = [case for case in possible if self._gates(case)]
        self._gated = sum(len(gated_metrics(case)) for case in gating)
        self._possible = len(gating)
        for suite in {case.suite for case in possible}:
            self._store.load_structures(suite)
        self._baselines = {
            tier: self._store.load(self.capacity.accelerator_key(tier))
            for tier in {case.tier for case in possible}
        }
        if self._recording is None and not self.options.cluster.each_node:
            self._length = self._length_of_all()
        if self.options.policy.save_mode is not None:
            self.work.check(case for case in possible if case.trains)
        if possible:
            self.history.check()
        if possible and self.options.policy.save_mode is not None:
            self._store.check_storable()

    def _gates(self, case: Case) -> bool:
        return self.night is None or self.night.gates(case)

    def _length_of_all(self) -> str:
        """Return how long the session takes; "" if the line of its one suite states it."""
        planned, stored = self._all_planned, self._baselines
        audit_s = self._audit_length()
        known = any(case.id in stored[case.tier].cases for case in planned)
        further = further_length(self.options.settle_s if known else 0.0, audit_s)
        if self.night is not None and planned:
            return night_length(planned, stored, self.night) + further
        if len(self._planned) > 1 or audit_s:
            return session_length(planned, stored) + further
        return ""

    @property
    def _all_planned(self) -> list[Case]:
        return [case for row in self._planned.values() for case in row]

    @property
    def errors(self) -> list[str]:
        """The outputs that could not be written. Each of them fails the session."""
        own = [self.write_error, self.history.error, *self.report.errors]
        duel = self.against.report.errors if self.against is not None else []
        problems = [*own, *duel, *self._work_report.errors, self.other_error]
        return [problem for problem in problems if problem]

    @property
    def lines(self) -> list[str]:
        """A line for each file that was written, for the end of the terminal's summary."""
        is_written = self.options.json_path is not None and self.results and not self.write_error
        results = [f"results: {self.options.json_path}"] if is_written else []
        duel = self.against.report.lines if self.against is not None else []
        return [*self.report.lines, *duel, *self._work_report.lines, *results]

    def targets(self, case: Case) -> dict[str, Target]:
        """Return the targets of a case on this machine, by metric."""
        key = self.capacity.accelerator_key(case.tier)
        if key not in self._published:
            self._published[key] = ()
            with contextlib.suppress(BaselineError):  # `plan` refuses a broken file
                self._published[key] = self._store.load(key).published
        return targets_of(case, key, self._published[key])

    def result(self, suite: str) -> SuiteResult:
        """Return the suite's result with all its planned cases; measure them at the first call.

        Raises DdpPerfError, also for an error that is not the user's, with its traceback; and the
        same error again for every later item of the suite.
        """
        return self._result(suite, self._planned[suite])

    def measure(self, case: Case) -> SuiteResult:
        """Return the result of the case's suite, with this case even if it was not planned.

        The one-rank case that its scaling is computed from is measured with it. Raises the same
        errors as ``result``.
        """
        wanted = [c for c in self.cases if c.suite == case.suite and c.id in (case.single, case.id)]
        planned = self._planned.setdefault(case.suite, [])
        planned += [case for case in wanted if case not in planned]
        return self._result(case.suite, wanted)

    def note_test(self, case: Case, metric: str | None = None) -> None:
        """Note that a test requests the case, and asserts its verdict on ``metric``, if any."""
        metrics = self._asserted.setdefault(case.key, set())
        if metric is not None:
            metrics.add(metric)

    def asserts(self, case: Case, metric: str) -> bool:
        """Return whether a test asserts the verdict on a metric of the case."""
        return metric in self._asserted.get(case.key, ())

    def is_first(self, case: Case, what: str) -> bool:
        """Return True once for each case and what a test's report shows of it."""
        is_new = (case.key, what) not in self._shown
        self._shown.add((case.key, what))
        return is_new

    def is_first_reason(self, reason: str) -> bool:
        """Return True once for each reason of tests: another case's has only other figures."""
        key = without_figures(reason)
        is_new = key not in self._reasons
        self._reasons.add(key)
        return is_new

    def owes(self, case: Case) -> bool:
        """Return whether a strict session must fail because the case cannot run here.

        A case is excused if it needs more GPUs than the machine is expected to have, or another
        type of GPU, or several nodes that are to be measured one by one; all of it only if another
        case can be measured: a session that measures nothing at all never passes.
        """
        if not any(self._planned.values()):
            return True
        expected, cluster = self.options.expect_devices, self.options.cluster
        if self.capacity.is_too_old(case) or (cluster.each_node and case.nodes > 1):
            return False
        return expected is None or case.tier == "cpu" or case.ranks_per_node <= expected

    def audit(self) -> None:
        """Run the audit, if one is wanted and a suite was measured. The machine is still leased."""
        if self.options.audit and self._bench is not None:
            self.audit_line = audit_session(
                list(self.results.values()),
                launch=self._launch_audit,
                keep=self.history.append_audit,
                say=self._progress.say,
            )

    def close(self, *, began: bool, counted: Sequence[CountedCase]) -> None:
        """End the ranks, free the machine, and write the results.

        A requested report is written even if nothing was measured, so that the report of an
        earlier session is not mistaken for this one; that of ``counted`` cases is another one.
        ``began`` is False if pytest refused to run; then the earlier report stays.
        """
        self._resources.close()
        self._bench = None
        if self.against is not None:
            self.against.close()
        elif self.results or (self.report.is_wanted and began and not counted):
            self.results = {name: self._with_asserted(row) for name, row in self.results.items()}
            complete = self._judged == {case.key for case in self._all_planned}
            complete &= self._recording is None or self._recording.complete
            self._write(complete=complete)
            self.report.write(list(self.results.values()), complete=complete)
        self._work_report.write(counted, self.capacity.accelerator_key("gpu"))
        self.history.close()

    def _with_asserted(self, result: SuiteResult) -> SuiteResult:
        asserted = {
            case_id: tuple(sorted(self._asserted[result.suite, case_id]))
            for case_id in result.measurements
            if (result.suite, case_id) in self._asserted
        }
        return msgspec.structs.replace(result, asserted=asserted)

    def _result(self, suite: str, wanted: Sequence[Case]) -> SuiteResult:
        if suite in self._errors:
            raise DdpPerfError(self._errors[suite])
        missing = [case for case in wanted if (suite, case.id) not in self._judged]
        if missing:
            try:
                self.results[suite] = self._measure(suite, missing)
            except (KeyboardInterrupt, pytest.exit.Exception):
                self.interruption = self._interruption(suite, missing)
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
        mode, result = self.options.policy.save_mode, self.results.get(suite)
        if mode is not None and (result is None or not result.saved):
            lacking.append(f"not stored (--save-baseline={mode})")
        elif mode is not None and result is not None and lacking:
            kept = f"; the first session of {counted(len(result.saved), 'case')} is stored"
        what = f": {suite} is {' and '.join(lacking)}{kept}; run it again" if lacking else ""
        return f"interrupted {self._progress.how_far()}{what}"

    def _measure(self, suite: str, cases: Sequence[Case]) -> SuiteResult:
        if self._recording is not None:
            self._progress.say(self._recording.line(suite))
            replayed = self._recording.judge(suite, self.cases, self._store)
            self._note_judged(cases, replayed)
            return replayed
        # Imported here: judging needs scipy, a third of a second that collection can do without.
        from ddp_perf.session.measure.suite import SuiteRequest, run_suite
        from ddp_perf.stats.rule.alpha_spending import alpha_per_metric

        return run_suite(
            SuiteRequest(
                suite=suite,
                cases=tuple(cases),
                requested=frozenset(id_ for of, id_ in self._asserted if of == suite),
                earlier=self.results.get(suite),
                reported=self._reported(suite),
                alpha=alpha_per_metric(self._rate_of_sessions(), self._gated),
                policy=self.options.policy,
                command=self.command,
                commands={
                    case_id: command
                    for (of, case_id), command in self.commands.items()
                    if of == suite
                },
            ),
            self._bench_for(cases[0]),
            capacity=self.capacity,
            store=self._store,
            on_partial=self._note_partial,
            on_judged=functools.partial(self._note_judged, cases),
            other_work=self._other_work,
            code=self._code,
            settle=self._settle,
        )

    def _audit_length(self) -> float:
        """Return the most seconds that the session's audit takes; 0: it has none."""
        if not self.options.audit:
            return 0.0
        cases = [case for case in self._all_planned if is_auditable(case)]
        return audit_length(cases, self._baselines, settle_s=self.options.settle_s)

    def _launch_audit(self, hidden: HiddenSlowDown) -> GateAudit:
        from ddp_perf.session.audit.run import AuditRequest, run_audit

        case = hidden.case
        return run_audit(
            AuditRequest(
                hidden=hidden,
                baseline=self._baselines[case.tier],
                alpha=self.results[case.suite].alpha,
            ),
            self._bench_for(case),
            capacity=self.capacity,
            store=self._store,
            code=self._code,
            settle=self._make_settling(hidden),
        )

    def _rate_of_sessions(self) -> float:
        """Return the error rate of the stored sessions' rule, if the second stage has the rest."""
        from ddp_perf.stats.rule.two_stages import OF_SESSION

        rate = self.options.false_alarm_rate
        return rate * OF_SESSION if self.options.settle_s else rate

    @functools.cached_property
    def _code(self) -> SessionCode:
        """Today's code, as it is before the first launch."""
        return session_code(self._config, self.options)

    @functools.cached_property
    def _settle(self) -> Settle | None:
        return self._make_settling()

    def _make_settling(self, audited: HiddenSlowDown | None = None) -> Settle | None:
        return make_settling(
            self.options,
            self.capacity,
            self._progress,
            self._store,
            self._code,
            root=self._root,
            suites=self._suites,
            cases=self._possible,
            audited=audited,
        )

    def _reported(self, suite: str) -> frozenset[str]:
        """Return the ids of the suite's cases whose times fail nothing: they rotate."""
        of_suite = [case for case in self.cases if case.suite == suite]
        return frozenset(case.id for case in of_suite if not self._gates(case))

    def _other_work(self, case: Case) -> str | None:
        """Return what the step does beyond its stored counts; None also if it cannot be counted."""
        try:
            return self.work.other_work(case)
        except LaunchError:
            return None

    def _bench_for(self, case: Case) -> Bench:
        """Return the bench with the nodes of the launcher that the case's suite has."""
        bench = self._open_bench()
        nodes = bench.launcher.nodes(case)
        if bench.each_node:
            check_nodes(nodes)
        return msgspec.structs.replace(bench, nodes=nodes)

    def _open_bench(self) -> Bench:
        """Open the machine before the first launch of the session; `close` frees it."""
        if self._bench is None:
            if self._length:
                self._progress.say(self._length)
            launcher = self._resources.enter_context(
                open_machine(
                    self.capacity,
                    self._launchers,
                    on_wait=self._progress.warn,
                    on_sigterm=self._end_by_sigterm,
                )
            )
            self._bench = Bench(
                launcher=launcher,
                progress=self._progress,
                root=self._root,
                import_paths=self.options.import_paths,
                injections=self.options.injections,
                each_node=self.options.cluster.each_node,
            )
        return self._bench

    def _end_by_sigterm(self) -> NoReturn:
        """End the session as Ctrl-C does: results are written."""
        self.is_terminated = True
        how_far = (self._progress if self.against is None else self.against).how_far()
        pytest.exit(f"ended by SIGTERM {how_far}")

    def _note_judged(self, cases: Sequence[Case], result: SuiteResult) -> None:
        """Mark the cases as measured, whatever fails from here on."""
        self._judged |= {case.key for case in cases}
        self._note_partial(result)
        self.history.append(result)

    def _note_partial(self, result: SuiteResult) -> None:
        self.results[result.suite] = result
        self._write(complete=False)

    def _write(self, *, complete: bool) -> None:
        """Write the results file. An error is kept: it fails the session, not the measurement."""
        path = self.options.json_path
        if path is None:
            return
        try:
            write_results(path, list(self.results.values()), complete=complete)
            self.write_error = None
        except OSError as error:
            self.write_error = f"--ddp-json: {path} cannot be written: {error.strerror}"


def _recording(path: Path | None) -> Recording | None:
    """Return the results file to replay, if there is one. Raises ResultsError."""
    if path is None:
        return None
    from ddp_perf.session.recording import read_recording  # judging needs scipy: see `_measure`

    return read_recording(path)


def _saving(policy: Policy) -> Saving | None:
    mode = policy.save_mode
    return None if mode is None else Saving(mode=mode, reason=policy.reason)


def _names(cases: Sequence[Case]) -> dict[str, Case]:
    """Return the cases by id, with the suite's name before an id that two tiers share."""
    count = collections.Counter(case.id for case in cases)
    return {case.id if count[case.id] == 1 else f"{case.suite}-{case.id}": case for case in cases}


SESSION = pytest.StashKey[DdpSession]()
