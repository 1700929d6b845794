"""The source of a session's results: this machine measures them, or a recording has them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.plugin.plan import SessionPlan, Setup
from ddp_perf.plugin.settling import audit_session, check_nodes, check_pool, make_settling
from ddp_perf.session.measure.machine import Launchers, open_machine
from ddp_perf.session.measure.rounds import Bench
from ddp_perf.session.result import SuiteResult
from ddp_perf.system.host.launch_platform import check_can_launch
from ddp_perf.system.host.termination import sigterm_calls
from ddp_perf.workloads.corpus import check_texts

if TYPE_CHECKING:
    from ddp_perf.core.verdict import GateAudit
    from ddp_perf.session.gate_audit import HiddenSlowDown
    from ddp_perf.session.judge_results import Recording
    from ddp_perf.session.measure.rounds import SessionCode
    from ddp_perf.session.measure.storable import Settle
    from ddp_perf.session.measure.suite import SuiteRequest


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of a session while a suite is measured, and what its work tests found."""

    on_partial: Callable[[SuiteResult], None]
    on_judged: Callable[[SuiteResult], None]
    other_work: Callable[[Case], str | None]


class Source(Protocol):
    """A source of the results of suites."""

    is_complete: bool  # False: the recorded session did not end

    def check(self, plan: SessionPlan, *, wanted: bool) -> None:
        """Refuse what cannot be measured, before the first launch. Raises DdpPerfError."""

    def measure(self, suite: str, request: Callable[[], SuiteRequest], notes: Notes) -> SuiteResult:
        """Return the judged result of the requested cases. Raises DdpPerfError."""

    def audit(
        self, results: Mapping[str, SuiteResult], keep: Callable[[GateAudit], None]
    ) -> str | None:
        """Return the line about an audit of the gate; None if nothing was measured."""

    def close(self) -> None: ...


class Recorded:
    """A recording: its sessions are judged, and nothing is launched."""

    def __init__(self, setup: Setup, recording: Recording) -> None:
        self.is_complete = recording.complete
        self._setup = setup
        self._recording = recording

    def check(self, plan: SessionPlan, *, wanted: bool) -> None: ...

    def measure(self, suite: str, request: Callable[[], SuiteRequest], notes: Notes) -> SuiteResult:
        self._setup.progress.say(self._recording.line(suite))
        result = self._recording.judge(suite, self._setup.cases, self._setup.store)
        notes.on_judged(result)
        return result

    def audit(
        self, results: Mapping[str, SuiteResult], keep: Callable[[GateAudit], None]
    ) -> None: ...

    def close(self) -> None: ...


class Measured:
    """This machine, or the nodes of a cluster: leased from the first launch to the end.

    ``code`` returns today's code, as it is before the first launch.
    """

    is_complete = True

    def __init__(
        self,
        setup: Setup,
        launchers: Launchers,
        *,
        code: Callable[[], SessionCode],
        on_sigterm: Callable[[], NoReturn],
    ) -> None:
        self._setup = setup
        self._launchers = launchers
        self._read_code = code
        self._on_sigterm = on_sigterm
        self._plan = SessionPlan()
        self._resources = contextlib.ExitStack()
        self._resources.callback(launchers.close)
        self._bench: Bench | None = None

    def check(self, plan: SessionPlan, *, wanted: bool) -> None:
        options = self._setup.options
        if wanted:
            check_can_launch()
        if options.cluster.each_node:
            check_pool(options.machine, plan.possible)
        check_texts(plan.possible)
        self._plan = plan

    def measure(self, suite: str, request: Callable[[], SuiteRequest], notes: Notes) -> SuiteResult:
        # Imported here: judging needs scipy, a third of a second that collection can do without.
        from ddp_perf.session.measure.suite import run_suite

        asked = request()
        return run_suite(
            asked,
            self._bench_for(asked.cases[0]),
            on_partial=notes.on_partial,
            on_judged=notes.on_judged,
            other_work=notes.other_work,
            settle=self._settle,
        )

    def audit(
        self, results: Mapping[str, SuiteResult], keep: Callable[[GateAudit], None]
    ) -> str | None:
        if self._bench is None:
            return None
        return audit_session(
            list(results.values()),
            launch=functools.partial(self._launch_audit, results),
            keep=keep,
            say=self._setup.progress.say,
        )

    def close(self) -> None:
        """End the ranks, and free the machine."""
        self._resources.close()
        self._bench = None

    @functools.cached_property
    def _code(self) -> SessionCode:
        return self._read_code()

    @functools.cached_property
    def _settle(self) -> Settle | None:
        return make_settling(self._setup, self._code, cases=len(self._plan.gating))

    def _launch_audit(
        self, results: Mapping[str, SuiteResult], hidden: HiddenSlowDown
    ) -> GateAudit:
        from ddp_perf.session.gate_audit import AuditRequest, run_audit

        case = hidden.case
        return run_audit(
            AuditRequest(
                hidden=hidden,
                baseline=self._plan.baselines[case.tier],
                alpha=results[case.suite].alpha,
            ),
            self._bench_for(case),
            settle=make_settling(
                self._setup, self._code, cases=len(self._plan.gating), audited=hidden
            ),
        )

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
            setup, options = self._setup, self._setup.options
            if not options.cluster.each_node and (length := self._plan.length(options)):
                setup.progress.say(length)
            launcher = self._resources.enter_context(
                open_machine(setup.capacity, self._launchers, on_wait=setup.progress.warn)
            )
            self._resources.enter_context(sigterm_calls(self._on_sigterm))
            self._bench = Bench(
                launcher=launcher,
                progress=setup.progress,
                capacity=setup.capacity,
                store=setup.store,
                code=self._code,
                root=setup.root,
                import_paths=options.import_paths,
                injections=options.injections,
                each_node=options.cluster.each_node,
            )
        return self._bench


def read_recorded(path: Path | None) -> Recording | None:
    """Return the results file to replay, if there is one. Raises ResultsError."""
    if path is None:
        return None
    from ddp_perf.session.judge_results import read_recording  # judging needs scipy: see `measure`

    return read_recording(path)
