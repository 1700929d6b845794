"""``--ddp-report``: written when the session ends; a GitHub job is told of it, too."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddp_perf.errors import HistoryError, ResultsError
from ddp_perf.session.result import SuiteResult


class ReportWriter:
    """The report of one pytest session; does nothing where none was asked for.

    ``results``: the file that holds what was measured, whatever becomes of the report;
    ``history``: the URL of the nights before.

    What draws and renders is imported where it is needed: collection need not pay for it.
    """

    def __init__(
        self, directory: Path | None, results: Path | None, history: str | None, root: Path
    ) -> None:
        self._directory = directory
        self._results = results
        self._history = history
        self._root = root
        self.lines: list[str] = []  # for the terminal
        self.errors: list[str] = []  # what the session fails for

    @property
    def is_wanted(self) -> bool:
        return self._directory is not None

    def write(
        self,
        suites: Sequence[SuiteResult],
        *,
        complete: bool,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """A report that cannot be written must not end the session: it fails it."""
        if self._directory is None:
            return
        from ddp_perf.report.directory import PAGE, write_report
        from ddp_perf.report.files.annotations import (
            annotation_lines,
            append_step_summary,
            is_github,
        )
        from ddp_perf.report.files.markdown import summary_markdown
        from ddp_perf.report.source import SELFTEST, ReportSource, curve_for, nights_for

        curve = None
        try:
            curve = curve_for(suites, self._root / SELFTEST)
        except ResultsError as error:
            self.errors.append(f"--ddp-report: without the self-test: {error}")
        nights = {}
        if self._history is not None and suites:
            try:
                nights = nights_for(suites, self._history)
            except HistoryError as error:
                self.errors.append(f"--ddp-report: without the history: {error}")
        source = ReportSource(suites=tuple(suites), complete=complete, curve=curve, nights=nights)
        try:
            night = write_report(self._directory, source)
        except ResultsError as error:
            self.errors.append(
                f"--ddp-report: {error}; what was measured is in {self._results}:"
                f" ddp-perf report {self._results}"
            )
            return
        if is_github(environ):
            self.lines += annotation_lines(night)
        try:
            append_step_summary(summary_markdown(night), environ)
        except OSError as error:
            self.errors.append(f"--ddp-report: GITHUB_STEP_SUMMARY: {error.strerror}")
        self.lines.append(f"report: {self._directory / PAGE}")
