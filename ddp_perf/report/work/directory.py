"""The files of the work report: a page, Markdown for a pull request, and JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.render.units import to_json
from ddp_perf.report.files.whole import write_files
from ddp_perf.report.html.work_page import work_html
from ddp_perf.report.work.markdown import work_markdown
from ddp_perf.report.work_rows import WorkReport, work_report
from ddp_perf.work.values import CountedCase

WORK_PAGE = "work.html"


def write_work_report(
    directory: Path,
    counted: Sequence[CountedCase],
    accelerators: Mapping[str, Sequence[str]],
) -> WorkReport:
    """Write work.html, work.md and work.json, and return their rows.

    ``accelerators`` are those that costs are modelled on, by suite. Each file is replaced as a
    whole, or stays as it was. Raises ResultsError, which names the file, if one cannot be written.
    """
    report = work_report(counted, accelerators)
    files = {
        WORK_PAGE: work_html(report),
        "work.md": work_markdown(report).encode("utf-8", "replace"),
        "work.json": (to_json(report) + "\n").encode("utf-8", "replace"),
    }
    write_files(directory, files.items())
    return report


def work_report_schema() -> dict[str, Any]:
    """Return the JSON Schema of work.json."""
    return msgspec.json.schema(WorkReport)
