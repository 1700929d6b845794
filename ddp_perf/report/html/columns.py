"""The columns of a suite's table: their text, and the figure that sorts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ddp_perf.render.units import ABSENT, short_percent
from ddp_perf.report.rows import CaseRow


@dataclass(frozen=True)
class Column:
    """A figure of a row. None: it was not measured, or does not apply."""

    heading: str
    value: Callable[[CaseRow], float | None]
    write: Callable[[float], str]

    def text(self, row: CaseRow) -> str:
        value = self.value(row)
        return ABSENT if value is None else self.write(value)


def columns_of(rows: Sequence[CaseRow]) -> list[Column]:
    """Return the columns that have a figure in any row: a collective has no speed-up."""
    return [column for column in _COLUMNS if any(column.value(row) is not None for row in rows)]


def ratio_text(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f} ×"


def percent_text(value: float | None) -> str:
    return ABSENT if value is None else short_percent(value)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:#.4g}".rstrip(".")


def _whole(value: float) -> str:
    return f"{value:,.0f}"


_COLUMNS = (
    Column("ranks", lambda row: row.ranks, _whole),
    Column("batch per rank", lambda row: row.batch_size, _whole),
    Column("step, ms", lambda row: row.step_s, _ms),
    Column("level, ms", lambda row: row.level_s, _ms),
    Column("baseline level, ms", lambda row: row.baseline_level_s, _ms),
    Column("95th pct., ms", lambda row: row.p95_step_s, _ms),
    Column("throughput, /s", lambda row: None if row.call_s else row.throughput, _whole),
    Column("speed-up", lambda row: row.speedup, lambda value: f"{value:.2f} ×"),
    Column("efficiency", lambda row: row.efficiency, percent_text),
    Column("call, µs", lambda row: row.call_s, lambda value: f"{1e6 * value:,.1f}"),
    Column("algbw, GB/s", lambda row: row.algorithm_bytes_per_s, lambda v: f"{v / 1e9:.3g}"),
    Column("busbw, GB/s", lambda row: row.bus_bytes_per_s, lambda value: f"{value / 1e9:.3g}"),
    Column("memory, MiB", lambda row: row.peak_memory, lambda value: _whole(value / 2**20)),
    Column("energy, J per sample", lambda row: row.energy_j, lambda value: f"{value:.3g}"),
    Column("epoch, s (computed)", lambda row: row.epoch_s, _whole),
    Column("cost per million", lambda row: row.cost_per_million, lambda value: f"{value:.3g}"),
)
