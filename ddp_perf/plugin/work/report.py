"""``--ddp-report`` of counted cases, and GitHub's annotations at the lines that do more work."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.errors import DdpPerfError
from ddp_perf.work.values import CountedCase


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
    ) -> None:
        self._directory = directory
        self._store = store
        self._root = root
        self._import_paths = import_paths
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
        from ddp_perf.report.files.annotations import append_step_summary, is_github
        from ddp_perf.report.work.annotations import work_annotation_lines
        from ddp_perf.report.work.directory import WORK_PAGE, write_work_report
        from ddp_perf.report.work.markdown import work_markdown
        from ddp_perf.work.accelerators import accelerators_of

        try:
            accelerators = accelerators_of([one.case for one in cases], machine, self._store)
            report = write_work_report(self._directory, cases, accelerators)
        except DdpPerfError as error:
            self.errors.append(f"--ddp-report: {error}")
            return
        if is_github(environ):
            roots = [Path(path) for path in self._import_paths]
            repository = Path(environ.get("GITHUB_WORKSPACE", self._root))
            self.lines += work_annotation_lines(report, roots, repository)
        try:
            append_step_summary(work_markdown(report), environ)
        except OSError as error:
            self.errors.append(f"--ddp-report: GITHUB_STEP_SUMMARY: {error.strerror}")
        self.lines.append(f"report: {self._directory / WORK_PAGE}")
