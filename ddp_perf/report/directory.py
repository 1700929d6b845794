"""The directories of reports: of a session, of a duel, and of counted work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.duel.values import Duel
from ddp_perf.render.annotations import gitlab_json
from ddp_perf.render.checkout import CHECKOUT, Checkout
from ddp_perf.render.latex import table_latex
from ddp_perf.render.markdown import report_markdown
from ddp_perf.render.model import Report
from ddp_perf.render.page import report_page
from ddp_perf.render.tables import NARROWEST
from ddp_perf.render.terminal import report_text
from ddp_perf.render.units import to_json
from ddp_perf.report.columns import suite_figures
from ddp_perf.report.duel.report import build_duel
from ddp_perf.report.duel.rows import DuelReport, duel_report
from ddp_perf.report.next_steps.session import after_session
from ddp_perf.report.rows import ReportSummary, by_suite, report_summary
from ddp_perf.report.session_report import PAGE, build_session
from ddp_perf.report.source import ReportSource
from ddp_perf.report.tables import summary_csv, techniques_csv
from ddp_perf.report.work_rows import WorkReport, build_work, work_report
from ddp_perf.system.files import write_files
from ddp_perf.work.values import CountedCase

# ``--ddp-report=DIR``: the page, and files with the same rows.


_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")  # in a file's name: the name comes from a results file
QUALITY = "gl-code-quality-report.json"  # GitLab's name; a directory can have three reports
# The files of all reports, and what each is for: docs/files.md.
FILES = {
    PAGE: "the page: one file, without network",
    "results.json": "everything that was measured; rewritten after each round",
    "summary.md": "a pull request",
    "performance_report.txt": "reading: tables, reasons and advice",
    "comprehensive_summary.csv": "spreadsheets: every figure, in seconds and bytes",
    "techniques.csv": "what each technique gains, if the session compared any",
    "summary_table.tex": "`\\input` in a paper; it needs no package",
    "SUITE_throughput.png": "slides, as `.svg` too: throughput against ranks",
    "SUITE_speedup_efficiency.png": "slides, as `.svg` too: speed-up and efficiency",
    "SUITE_epoch_time_detailed.png": "slides, as `.svg` too: the computed time of an epoch",
    QUALITY: "GitLab's code quality: the red and undecided cases",
    "work.html": "counted work as a page; `work.md` for a pull request, `work.json` for programs",
    "duel.html": "a duel as a page; `duel.md` for a pull request, `duel.json` for programs",
}


def write_report(directory: Path, source: ReportSource) -> Report:
    """Write all files of a report, the page first, and return what a person reads of it.

    Each file is replaced as a whole, or stays as it was. Raises ResultsError, which names the file,
    if one cannot be written.
    """
    summary = report_summary(source.suites, complete=source.complete)
    report = build_session(source.suites, summary, after_session(source.suites))
    write_files(directory, _files(source, summary, report))
    return report


def _files(
    source: ReportSource, summary: ReportSummary, report: Report
) -> Iterator[tuple[str, bytes]]:
    # Imported here: charts take a third of a second, and most commands draw none.
    from ddp_perf.render.chart import image
    from ddp_perf.report.charts import scaling_charts
    from ddp_perf.report.session_page import build_page

    yield PAGE, report_page(build_page(source, summary, report))
    each = build_session(source.suites, summary, report.next, each=True)
    texts = {
        "comprehensive_summary.csv": summary_csv(summary.rows),
        "summary_table.tex": table_latex(suite_figures(summary.rows)),
        "performance_report.txt": f"{report_text(each, NARROWEST, whole=True)}\n",
        "summary.md": report_markdown(report),
        QUALITY: gitlab_json(report),  # it names no line
    }
    if summary.gains:
        texts["techniques.csv"] = techniques_csv(summary.gains)
    for name, text in texts.items():
        yield name, text.encode("utf-8", "replace")
    for suite, rows in by_suite(source.suites, summary.rows):
        for name, chart in scaling_charts(suite, rows):
            for suffix in (".png", ".svg"):
                file = f"{_UNSAFE.sub('_', suite.suite)}_{name}{suffix}"
                yield file, image(chart, suffix)


# The files of the work report: a page, Markdown for a pull request, and JSON for programs.


def write_work_report(
    directory: Path,
    counted: Sequence[CountedCase],
    accelerators: Mapping[str, Sequence[str]],
    checkout: Checkout = CHECKOUT,
    command: str | None = None,
) -> Report:
    """Write work.html, work.md, work.json and GitLab's file, and return what a person reads.

    ``accelerators`` are those that costs are modelled on, by suite; ``command`` is that of the
    session. Each file is replaced as a
    whole, or stays as it was. Raises ResultsError, which names the file, if one cannot be written.
    """
    rows = work_report(counted, accelerators, command)
    report = build_work(rows)
    _write(directory, report, report_markdown(report), to_json(rows), checkout)
    return report


def _write(
    directory: Path, report: Report, markdown: str, data: str, checkout: Checkout
) -> list[Path]:
    """Write a page and the files beside it, and return their paths."""
    stem = Path(report.page).stem
    texts = {
        f"{stem}.md": markdown,
        report.data: f"{data}\n",
        f"{stem}.{QUALITY}": gitlab_json(report, checkout),
    }
    encoded = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
    files = {report.page: report_page(report), **encoded}
    return write_files(directory, files.items())


def work_report_schema() -> dict[str, Any]:
    """Return the JSON Schema of work.json."""
    return msgspec.json.schema(WorkReport)


# ``duel.json``: the verdicts of a duel for programs.


def duel_json(duel: Duel) -> str:
    """Return the verdicts with their figures, what differs, and the figures of each pair."""
    return to_json(duel_report(duel))


def duel_schema() -> dict[str, Any]:
    """Return the JSON Schema of duel.json."""
    return msgspec.json.schema(DuelReport)


# The files of a duel's report: a page, Markdown for a pull request, and JSON for programs.


def write_duel_report(directory: Path, duel: Duel, checkout: Checkout = CHECKOUT) -> list[Path]:
    """Write duel.html, duel.md, duel.json and GitLab's file, and return their paths.

    Each file is replaced as a whole, or stays as it was. Raises ResultsError, which names the file,
    if one cannot be written.
    """
    report = build_duel(duel)
    return _write(directory, report, report_markdown(report), duel_json(duel), checkout)
