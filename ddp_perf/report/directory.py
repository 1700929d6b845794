"""``--ddp-report=DIR``: the page, and files for other tools with the same rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddp_perf.report.files.action_benchmark import action_benchmark_json
from ddp_perf.report.files.bencher import bencher_json
from ddp_perf.report.files.exporters import prometheus_text
from ddp_perf.report.files.latex import summary_tex
from ddp_perf.report.files.markdown import summary_markdown
from ddp_perf.report.files.otava import otava_csv, otava_yaml
from ddp_perf.report.files.performance_report import performance_report
from ddp_perf.report.files.plots import plot_files
from ddp_perf.report.files.summary import summary_csv
from ddp_perf.report.files.techniques import techniques_csv
from ddp_perf.report.files.whole import write_files
from ddp_perf.report.html.page import report_html
from ddp_perf.report.rows import ReportSummary, report_summary
from ddp_perf.report.source import ReportSource

PAGE = "index.html"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")  # in a file's name: the name comes from a results file


def write_report(directory: Path, source: ReportSource) -> ReportSummary:
    """Write all files of a report, the page first, and return the summary.

    Each file is replaced as a whole, or stays as it was. Raises ResultsError, which names the file,
    if one cannot be written.
    """
    summary = report_summary(source.suites, complete=source.complete)
    write_files(directory, _files(source, summary))
    return summary


def _files(source: ReportSource, summary: ReportSummary) -> Iterator[tuple[str, bytes]]:
    yield PAGE, report_html(source, summary)
    texts = {
        "comprehensive_summary.csv": summary_csv(summary.rows),
        "summary_table.tex": summary_tex(summary.rows),
        "performance_report.txt": performance_report(source.suites, summary),
        "summary.md": summary_markdown(summary),
        "github-action-benchmark.json": action_benchmark_json(summary.rows),
        "bencher.json": bencher_json(summary.rows),
        "otava.csv": otava_csv(summary.rows),
        "otava.yaml": otava_yaml(summary.rows),
        "ddp_perf.prom": prometheus_text(summary.rows),
    }
    if summary.gains:
        texts["techniques.csv"] = techniques_csv(summary.gains)
    for name, text in texts.items():
        yield name, text.encode("utf-8", "replace")
    for suite in source.suites:
        rows = [row for row in summary.rows if row.suite == suite.suite]
        for name, data in plot_files(suite, rows):
            yield f"{_UNSAFE.sub('_', suite.suite)}_{name}", data
