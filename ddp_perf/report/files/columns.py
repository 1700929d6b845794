"""The columns of the tables in LaTeX and in Markdown."""

from __future__ import annotations

from collections.abc import Callable

from ddp_perf.render.units import ABSENT, percent
from ddp_perf.report.rows import CaseRow

FileColumn = tuple[str, Callable[[CaseRow], str]]


def _or_dash(value: float | None, written: str) -> str:
    return ABSENT if value is None else written.format(value)


def _interval(row: CaseRow) -> str:
    if row.ratio_low is None or row.ratio_high is None:
        return ABSENT
    return f"{row.ratio_low:.3f} to {row.ratio_high:.3f}"


COLUMNS: tuple[FileColumn, ...] = (
    ("case", lambda row: row.case),
    ("ranks", lambda row: str(row.ranks)),
    ("step ms", lambda row: _or_dash(row.step_s and row.step_s * 1e3, "{:.2f}")),
    ("throughput /s", lambda row: _or_dash(row.throughput, "{:,.0f}")),
    ("speed-up", lambda row: _or_dash(row.speedup, "{:.2f}")),
    ("efficiency", lambda row: percent(row.efficiency, 0)),
    ("verdict", lambda row: row.verdict),
    ("ratio", lambda row: _or_dash(row.ratio, "{:.3f}")),
    ("99 % interval", _interval),
    ("min. det.", lambda row: percent(row.minimum_detectable)),
)
