"""The files of a duel's report: a page, Markdown for a pull request, and JSON for programs."""

from __future__ import annotations

from pathlib import Path

from ddp_perf.duel.values import Duel
from ddp_perf.report.duel.json_file import duel_json
from ddp_perf.report.duel.markdown import duel_markdown
from ddp_perf.report.files.whole import write_files
from ddp_perf.report.html.duel_page import duel_html

DUEL_PAGE = "duel.html"


def write_duel_report(directory: Path, duel: Duel) -> list[Path]:
    """Write duel.html, duel.md and duel.json, and return their paths.

    Each file is replaced as a whole, or stays as it was. Raises ResultsError, which names the file,
    if one cannot be written.
    """
    files = {
        DUEL_PAGE: duel_html(duel),
        "duel.md": duel_markdown(duel).encode("utf-8", "replace"),
        "duel.json": (duel_json(duel) + "\n").encode("utf-8", "replace"),
    }
    write_files(directory, files.items())
    return [directory / name for name in files]
