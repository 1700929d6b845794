"""JSON for github-action-benchmark, its tool ``customSmallerIsBetter``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ddp_perf.report.rows import CaseRow


def action_benchmark_json(rows: Sequence[CaseRow]) -> str:
    """Return the typical step of every measured case, in ms, with the range of its launches."""
    entries = [
        {
            "name": f"{row.suite}/{row.case}",
            "unit": "ms/step",
            "value": row.step_s * 1e3,
            "range": f"± {(row.step_high_s - row.step_low_s) * 500:.3g}",
            "extra": f"{row.verdict}: {row.reason}\n{_origin(row)}",
        }
        for row in rows
        if row.step_s is not None and row.step_low_s is not None and row.step_high_s is not None
    ]
    return json.dumps(entries, indent=1, allow_nan=False) + "\n"


def _origin(row: CaseRow) -> str:
    known = (("commit", row.commit), ("branch", row.branch), ("host", row.host))
    return ", ".join(f"{name} {value}" for name, value in known if value)
