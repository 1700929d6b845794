"""The files of a duel: ``--ddp-report``, ``--ddp-json``, and what a GitHub job shows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ddp_perf.duel.result_file import write_duel
from ddp_perf.duel.touched import Touched
from ddp_perf.duel.values import Duel
from ddp_perf.errors import DdpPerfError, ResultsError
from ddp_perf.render.units import counted
from ddp_perf.system.files import replace_file

_MOST_CASES = 20  # that are named for each reason
_COMMENT = "duel.md"


class DuelReportWriter:
    """The files of the duel of one pytest session. Without a path it does nothing.

    Rendering is imported late: it is slow to import, and collection does not need it.
    """

    def __init__(
        self,
        directory: Path | None,
        results: Path | None,
        *,
        root: Path,
        import_paths: Sequence[str],
    ) -> None:
        self._directory = directory
        self._results = results
        self._root = root
        self._import_paths = import_paths
        self.lines: list[str] = []  # for the terminal
        self.errors: list[str] = []  # each fails the session

    def write(
        self, duel: Duel | None, touched: Touched, *, environ: Mapping[str, str] = os.environ
    ) -> None:
        """Write the files. An error is appended to ``errors``: it must not end the session.

        Without a duel nothing is written, unless the changed files touch no case.
        """
        if duel is None and not touched.left_out:
            return
        try:
            if self._results is not None and duel is not None:
                write_duel(self._results, duel)
                self.lines.append(f"results: {self._results}")
            if self._directory is not None:
                self._write_report(self._directory, duel, touched, environ)
        except DdpPerfError as error:
            self.errors.append(f"the duel: {error}")

    def _write_report(
        self, directory: Path, duel: Duel | None, touched: Touched, environ: Mapping[str, str]
    ) -> None:
        from ddp_perf.report.duel.annotations import duel_annotation_lines
        from ddp_perf.report.duel.directory import DUEL_PAGE, write_duel_report
        from ddp_perf.report.files.annotations import append_step_summary, is_github

        if duel is not None:
            write_duel_report(directory, duel)
        comment, path = _comment(duel, touched), directory / _COMMENT
        try:
            replace_file(path, comment.encode("utf-8", "replace"))
        except OSError as error:
            raise ResultsError(f"{path}: cannot be written: {error.strerror}") from None
        if duel is not None and is_github(environ):
            roots = [Path(path) for path in self._import_paths]
            repository = Path(environ.get("GITHUB_WORKSPACE", self._root))
            self.lines += duel_annotation_lines(duel, roots, repository)
        try:
            append_step_summary(comment, environ)
        except OSError as error:
            self.errors.append(f"--ddp-report: GITHUB_STEP_SUMMARY: {error.strerror}")
        self.lines.append(f"report: {directory / (DUEL_PAGE if duel is not None else _COMMENT)}")


def _comment(duel: Duel | None, touched: Touched) -> str:
    """Return the Markdown of the duel, and of the cases that were left out of it."""
    from ddp_perf.report.duel.markdown import MARKER, duel_markdown

    nothing = f"{MARKER}\n## ✅ Duel: no changed file can touch a case\n"
    lines = [nothing if duel is None else duel_markdown(duel), *_left_out(touched)]
    return "\n".join(lines) + ("\n" if touched.left_out else "")


def _left_out(touched: Touched) -> Iterator[str]:
    """Yield for each reason how many cases it left out, and their names folded."""
    from ddp_perf.report.files.markdown import markdown_escaped

    for reason in dict.fromkeys(touched.left_out.values()):
        names = [case_id for (_, case_id), why in touched.left_out.items() if why == reason]
        more = f", and {len(names) - _MOST_CASES} more" if len(names) > _MOST_CASES else ""
        shown = ", ".join(map(markdown_escaped, names[:_MOST_CASES]))
        summary = f"{counted(len(names), 'case')} left out: {markdown_escaped(reason)}"
        yield f"<details><summary>{summary}</summary>\n\n{shown}{more}\n\n</details>\n"
