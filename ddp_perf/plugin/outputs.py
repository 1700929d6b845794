"""Files of a pytest session that are written at its end: the reports and the history."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.verdict import GateAudit
from ddp_perf.errors import DdpPerfError, HistoryError, ResultsError
from ddp_perf.plugin.options import Options
from ddp_perf.render.annotations import tell_github
from ddp_perf.render.checkout import Checkout
from ddp_perf.session.result import SuiteResult, keep_results, write_results
from ddp_perf.work.values import CountedCase

if TYPE_CHECKING:
    from ddp_perf.history.records import SessionRecord
    from ddp_perf.report.source import ReportSource


# ``--ddp-report`` of counted cases, and GitHub's annotations at the lines that do more work.


class WorkReportWriter:
    """The report of the counted cases of one pytest session. Without a directory it does nothing.

    Rendering is imported late: it is slow to import, and collection does not need it.
    """

    def __init__(
        self,
        directory: Path | None,
        store: BaselineStore,
        *,
        root: Path,
        import_paths: Sequence[str],
        command: str,  # that counts again
    ) -> None:
        self._directory = directory
        self._store = store
        self._root = root
        self._import_paths = import_paths
        self._command = command
        self.lines: list[str] = []  # for the terminal
        self.errors: list[str] = []  # each fails the session

    def write(
        self,
        cases: Sequence[CountedCase],
        machine: str,
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Write the files. An error is appended to ``errors``: it must not end the session.

        ``machine`` is the name of the baseline file of this machine's GPUs. Without any case
        nothing is written.
        """
        if self._directory is None or not cases:
            return
        from ddp_perf.render.markdown import report_markdown
        from ddp_perf.report.directory import write_work_report
        from ddp_perf.work.cost import accelerators_of

        checkout = Checkout.of_job(self._import_paths, self._root, environ)
        try:
            accelerators = accelerators_of([one.case for one in cases], machine, self._store)
            report = write_work_report(
                self._directory, cases, accelerators, checkout, self._command
            )
        except DdpPerfError as error:
            self.errors.append(f"--ddp-report: {error}")
            return
        lines, errors = tell_github(report, report_markdown(report), environ, checkout)
        self.errors += errors
        self.lines += [*lines, f"report: {self._directory / report.page}"]


# Files of a pytest session that are written at its end: the report and the history.


class ReportWriter:
    """The report of one pytest session. Without a directory it does nothing.

    ``history`` is the URL of the earlier sessions.

    Plotting and rendering are imported late: they are slow to import, and collection does not
    need them.
    """

    def __init__(self, directory: Path | None, history: str | None, root: Path) -> None:
        self._directory = directory
        self._history = history
        self._root = root
        self.lines: list[str] = []  # for the terminal
        self.errors: list[str] = []  # each fails the session

    @property
    def is_wanted(self) -> bool:
        return self._directory is not None

    def write(
        self,
        suites: Sequence[SuiteResult],
        *,
        complete: bool,
        results: Path | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Write the report. An error is appended to ``errors``: it must not end the session.

        ``results`` is the file that has the measurements even if the report fails.
        """
        if self._directory is None:
            return
        from ddp_perf.render.markdown import report_markdown
        from ddp_perf.report.directory import write_report

        try:
            report = write_report(self._directory, self._source(suites, complete))
        except ResultsError as error:
            kept = (
                f"; the measurements are in {results}; write the report with: ddp-perf report"
                f" {results}"
            )
            self.errors.append(f"--ddp-report: {error}{kept if results else ''}")
            return
        lines, errors = tell_github(report, report_markdown(report), environ)
        self.errors += errors
        self.lines += [*lines, f"report: {self._directory / report.page}"]

    def _source(self, suites: Sequence[SuiteResult], complete: bool) -> ReportSource:
        """Add the self-test and the history to the suites. An error leaves out its part alone."""
        from ddp_perf.report.source import (
            SELFTEST,
            ReportSource,
            audit_lines_for,
            curve_for,
            history_points_for,
        )

        curve = None
        try:
            curve = curve_for(suites, self._root / SELFTEST)
        except ResultsError as error:
            self.errors.append(f"--ddp-report: the report lacks the self-test: {error}")
        sessions, audits = {}, []
        if self._history is not None and suites:
            try:
                sessions = history_points_for(suites, self._history)
                audits = audit_lines_for(suites, self._history)
            except HistoryError as error:
                self.errors.append(f"--ddp-report: the report lacks the history: {error}")
        return ReportSource(
            suites=tuple(suites),
            complete=complete,
            curve=curve,
            sessions=sessions,
            audits=tuple(audits),
        )


class HistoryLog:
    """The entries of one pytest session in a history. Without a URL it does nothing.

    The database library is imported late: it is slow to import, and collection does not need it.
    """

    def __init__(self, url: str | None, root: Path) -> None:
        self._url = url
        self._root = root
        self._refused: dict[str, SuiteResult] = {}
        self._why = ""
        self.appended: dict[str, SessionRecord] = {}  # by suite
        self.name = ""
        self.error: str | None = None  # fails the session

    def check(self) -> None:
        """Check before the first launch that the history is writable. Raises HistoryError."""
        if self._url is not None:
            from ddp_perf.history.store import HistoryStore

            with contextlib.closing(HistoryStore(self._url)) as store:
                self.name = store.name
                store.check_writable()

    def append(self, result: SuiteResult) -> None:
        """Append the suite as it is judged now. An error must not end the measurement: `close`
        reports it.
        """
        if self._url is None:
            return
        from ddp_perf.history.records import record_of
        from ddp_perf.history.store import HistoryStore

        try:
            record = record_of(result)
            with contextlib.closing(HistoryStore(self._url)) as store:
                store.append([record])
            self._refused.pop(result.suite, None)
            self.appended[result.suite] = record
        except HistoryError as error:
            self._refused[result.suite] = result
            self._why = str(error)

    def append_audit(self, audit: GateAudit) -> None:
        """Append the session's audit. Raises HistoryError."""
        if self._url is None:
            return
        from ddp_perf.history.store import HistoryStore

        with contextlib.closing(HistoryStore(self._url)) as store:
            store.append_audit(audit)

    def audit_lines(self, suites: Sequence[SuiteResult]) -> list[str]:
        """Return what the history's audits of these suites' accelerators found so far."""
        if self._url is None or not suites:
            return []
        from ddp_perf.report.source import audit_lines_for

        try:
            return audit_lines_for(suites, self._url)
        except HistoryError as error:
            return [f"the audits of the gate cannot be read: {error}"]

    def close(self) -> None:
        """Write the suites that the store refused to a file of their own."""
        if not self._refused:
            return
        try:
            path = keep_results(self._root, "history-refused", list(self._refused.values()))
            name = shlex.quote(self.name)
            kept = f"were kept: ddp-perf history import {path} --history {name} appends them"
        except OSError as error:
            kept = f"were lost, too: {error.strerror}"
        self.error = f"--ddp-history: {self._why}; the measurements {kept}"

    def summary(self) -> str | None:
        """Return a line for the terminal, or None if nothing was appended."""
        return f"appended to the history {self.name}" if self.appended else None


class Notifier:
    """The messages about what a session changed in its history. Without a webhook it sends none.

    The HTTP client is imported late: it is slow to import, and collection does not need it.
    """

    def __init__(self, options: Options) -> None:
        self._webhooks = options.notify
        self._history = options.history
        self._report = options.report
        self.lines: list[str] = []  # for the terminal; none of them fails the session

    def notify(self, sessions: Collection[SessionRecord]) -> None:
        """Send the events of these sessions, if there are any, in one message."""
        if not (self._webhooks and self._history and sessions):
            return
        from ddp_perf.history.events import recorded_events
        from ddp_perf.history.store import HistoryStore
        from ddp_perf.plugin.notify import DEADLINE_S, send
        from ddp_perf.report.notification import notification
        from ddp_perf.report.session_report import PAGE

        report = "" if self._report is None else str(self._report.absolute() / PAGE)
        try:
            store = HistoryStore(self._history, create=False, patience_s=DEADLINE_S)
            with contextlib.closing(store):
                events = recorded_events(store, sessions)
        except HistoryError as error:
            self.lines = [f"--ddp-notify: nobody was notified: {error}"]
            return
        if events:
            self.lines = send(self._webhooks, notification(events, report=report))


class SessionFiles:
    """The files of one pytest session: its results, its reports, and its entry in a history."""

    def __init__(
        self, options: Options, store: BaselineStore, *, root: Path, counting: str
    ) -> None:
        self._root = root
        self._json_path = options.json_path
        self.report = ReportWriter(options.report, options.history, root)
        self.history = HistoryLog(options.history, root)
        self.notifier = Notifier(options)
        self._work_report = WorkReportWriter(
            options.report,
            store,
            root=root,
            import_paths=options.import_paths,
            command=counting,
        )
        self._is_written = False
        self._error: str | None = None
        self.other_error: str | None = None  # of another plugin's file, or of a Ctrl-C

    @property
    def errors(self) -> list[str]:
        """The files that could not be written. Each of them fails the session."""
        own = [self._error, self.history.error, *self.report.errors]
        problems = [*own, *self._work_report.errors, self.other_error]
        return [problem for problem in problems if problem]

    @property
    def lines(self) -> list[str]:
        """A line for each file that was written."""
        results = [f"results: {self._json_path}"] if self._is_written else []
        return [*self.report.lines, *self._work_report.lines, *results]

    def write_results(self, results: Mapping[str, SuiteResult], *, complete: bool) -> None:
        """Write the results file. An error is kept: it fails the session, not the measurement."""
        if self._json_path is None:
            return
        try:
            write_results(self._json_path, list(results.values()), complete=complete)
            self._error = None
        except OSError as error:
            self._error = f"--ddp-json: {self._json_path} cannot be written: {error.strerror}"
        self._is_written = bool(results) and self._error is None

    def write(self, results: Mapping[str, SuiteResult], *, complete: bool) -> None:
        """Write the results and the report of a session that has ended."""
        self.write_results(results, complete=complete)
        suites = list(results.values())
        path = self._json_path if self._error is None else self._kept(suites, complete=complete)
        self.report.write(suites, complete=complete, results=path)

    def _kept(self, suites: Sequence[SuiteResult], *, complete: bool) -> Path | None:
        """Write the results that their file refused to another one, and return its path."""
        if not suites:
            return None
        try:
            path = keep_results(self._root, "results", suites, complete=complete)
        except OSError as error:
            self._error = f"{self._error}; the measurements were lost, too: {error.strerror}"
            return None
        self._error = f"{self._error}; the measurements are in {path}"
        return path

    def close(self, counted: Sequence[CountedCase], machine: str) -> None:
        """Write the report of the counted cases, and what the history refused."""
        self._work_report.write(counted, machine)
        self.history.close()

    def notify(self) -> None:
        """Send what the session changed in the history. No failure of it is an error."""
        self.notifier.notify(self.history.appended.values())
