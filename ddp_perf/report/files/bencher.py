"""Bencher Metric Format: ``bencher run --adapter json --file bencher.json``.

https://bencher.dev/docs/reference/bencher-metric-format/
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ddp_perf.report.rows import CaseRow

_NS = 1e9  # Bencher's measure ``latency`` is in nanoseconds


def bencher_json(rows: Sequence[CaseRow]) -> str:
    """Return each measure of each case. The latency, in ns, has the range of its launches."""
    return json.dumps(
        {f"{row.suite}/{row.case}": _measures(row) for row in rows if row.step_s is not None},
        indent=1,
        allow_nan=False,
    )


def _measures(row: CaseRow) -> dict[str, dict[str, float]]:
    plain = {
        "throughput": row.throughput,
        "scaling-efficiency": row.efficiency,
        "peak-memory": row.peak_memory,
    }
    measures = {name: {"value": value} for name, value in plain.items() if value is not None}
    assert row.step_s is not None  # the caller checks it
    latency = {"value": row.step_s, "lower_value": row.step_low_s, "upper_value": row.step_high_s}
    measured = {name: seconds * _NS for name, seconds in latency.items() if seconds is not None}
    return {"latency": measured, **measures}
