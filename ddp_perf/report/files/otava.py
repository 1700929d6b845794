"""``otava.csv`` and ``otava.yaml``: this session as Apache Otava imports a time series.

Otava finds changes in many sessions: append the second line of each session's file to one file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import yaml

from ddp_perf.report.rows import CaseRow

_ATTRIBUTES = ("commit", "branch", "host")


def otava_csv(rows: Sequence[CaseRow]) -> str:
    """Return a heading and one line: date and origin, and the typical step of each case in ms."""
    measured = _measured(rows)
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["time", *_ATTRIBUTES, *measured])
    if rows:
        steps = [f"{row.step_s * 1e3:.6g}" for row in measured.values() if row.step_s]
        about = [getattr(rows[0], name) or "unknown" for name in _ATTRIBUTES]
        writer.writerow([rows[0].date, *about, *steps])
    return file.getvalue()


def otava_yaml(rows: Sequence[CaseRow]) -> str:
    """Return the configuration for ``otava analyze ddp-perf --config-file otava.yaml``."""
    metrics = {name: {"column": name, "direction": -1, "scale": 1.0} for name in _measured(rows)}
    test = {
        "type": "csv",
        "file": "otava.csv",
        "time_column": "time",
        "attributes": [*_ATTRIBUTES],
        "metrics": metrics,
    }
    return yaml.safe_dump({"tests": {"ddp-perf": test}}, sort_keys=False, allow_unicode=True)


def _measured(rows: Sequence[CaseRow]) -> dict[str, CaseRow]:
    """Return the rows by column name, without failed cases: Otava accepts no empty figure."""
    return {f"{row.suite}/{row.case}": row for row in rows if row.step_s is not None}
