"""``comprehensive_summary.csv``: every field of every row."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import msgspec

from ddp_perf.report.rows import CaseRow


def summary_csv(rows: Sequence[CaseRow]) -> str:
    """RFC 4180, a heading first. What is not known is empty."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, CaseRow.__struct_fields__)
    writer.writeheader()
    writer.writerows(msgspec.to_builtins(row) for row in rows)
    return file.getvalue()
