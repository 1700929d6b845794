"""``comprehensive_summary.csv``: every field of every row."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import msgspec

from ddp_perf.report.rows import CaseRow

# A spreadsheet runs a cell that begins with one of these (OWASP, "CSV Injection").
_RUN = ("=", "+", "-", "@", "\t", "\r", "\n")


def summary_csv(rows: Sequence[CaseRow]) -> str:
    """Return all rows as CSV (RFC 4180), with a heading.

    An absent figure is empty. A text that a spreadsheet would run has an apostrophe before it.
    """
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, CaseRow.__struct_encode_fields__)
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(cell) for name, cell in msgspec.to_builtins(row).items()})
    return file.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_RUN) else value
