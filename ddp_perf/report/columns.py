"""The table of a suite: its columns, their meaning, and what sorts them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ddp_perf.render.model import CASE, Cell, Column, Media, Table
from ddp_perf.render.units import (
    ABSENT,
    change_range,
    percent_change,
    rounded_percent,
    short_percent,
    suite_names,
)
from ddp_perf.report.rows import CaseRow


@dataclass(frozen=True)
class FigureColumn:
    """A figure of a row: its field ``key``, or what ``value`` computes.

    None: it was not measured, or does not apply.
    """

    key: str
    heading: str
    meaning: str
    write: Callable[[float], str]
    media: Media = "all"
    value: Callable[[CaseRow], float | None] | None = None

    @property
    def column(self) -> Column:
        return Column(title=self.heading, key=self.key, meaning=self.meaning, media=self.media)

    def cell(self, row: CaseRow) -> Cell:
        """Return the figure. Launches of a case that failed are not all of it: they show none."""
        of_row = self.value or operator.attrgetter(self.key)
        value: float | None = None if row.is_failed else of_row(row)
        return Cell(ABSENT if value is None else self.write(value), value)


def figure_table(
    label: str, figures: Sequence[FigureColumn], rows: Sequence[CaseRow], *, first: Column
) -> Table:
    """Return a row for each case, after its name ``first``, with the figures that any has."""
    known = _known(figures, rows)
    return Table(
        label=label,
        of_cases=True,
        columns=(first, *(one.column for one in known)),
        rows=tuple((Cell(row.case, row.case), *(one.cell(row) for one in known)) for row in rows),
    )


def suite_figures(rows: Sequence[CaseRow]) -> Table:
    """Return each case with its verdict, its change, and all that was measured.

    Figures that no case has are left out: a collective has no speed-up. With several suites, each
    name has its suite.
    """
    names = suite_names([(row.suite, row.case) for row in rows])
    unit = next((row.unit for row in rows if row.unit is not None), "samples")
    known = _known(_figures(unit), rows)
    return Table(
        label="figures of each case",
        of_cases=True,
        columns=(CASE, *JUDGED, *(one.column for one in known), *CERTAINTY),
        rows=tuple(
            (
                Cell(name, name),
                *_judged_cells(row),
                *(one.cell(row) for one in known),
                *_certainty_cells(row),
            )
            for row, name in zip(rows, names, strict=True)
        ),
    )


def _known(figures: Sequence[FigureColumn], rows: Sequence[CaseRow]) -> list[FigureColumn]:
    return [one for one in figures if any(one.cell(row).value is not None for row in rows)]


def _figures(unit: str) -> list[FigureColumn]:
    """Return the figures of a case, whose throughput is in ``unit`` per second."""
    return [replace(one, heading=one.heading.format(unit=unit)) for one in _FIGURES]


def session_columns() -> tuple[Column, ...]:
    """Return all columns of the table, as those of samples."""
    return (CASE, *JUDGED, *(one.column for one in _figures("samples")), *CERTAINTY)


JUDGED = (
    Column(title="verdict", key="verdict", meaning="the worst of the case", words=True),
    Column(
        title="change",
        key="ratio",
        meaning="of the metric with that verdict, against its baseline: + is worse",
    ),
)
CERTAINTY = (
    Column(
        title="99 % interval",
        key="ratio_low",
        meaning="of the change; its other end is ratio_high",
        media="wide",
    ),
    Column(
        title="detects",
        key="minimum_detectable",
        meaning="minimum detectable effect: the smallest slow-down that the comparison detects nine"
        " times in ten",
    ),
)


def _judged_cells(row: CaseRow) -> tuple[Cell, Cell]:
    change = ABSENT if row.ratio is None else percent_change(row.ratio)
    return Cell(row.verdict, row.verdict, row.status), Cell(change, row.ratio)


def _certainty_cells(row: CaseRow) -> tuple[Cell, Cell]:
    low, high, seen = row.ratio_low, row.ratio_high, row.minimum_detectable
    interval = None if low is None or high is None else (low, high)
    return Cell(change_range(interval), low), Cell(at_least(seen), seen)


def at_least(value: float | None) -> str:
    """Write the smallest slow-down that is found: ``≥ 5 %``."""
    return ABSENT if value is None else f"≥ {rounded_percent(value)}"


def percent_text(value: float | None) -> str:
    return ABSENT if value is None else short_percent(value)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:#.4g}".rstrip(".")


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def gigabytes(value: float) -> str:
    return f"{value / 1e9:.3g}"


def _three(value: float) -> str:
    return f"{value:.3g}"


def _step_s(row: CaseRow) -> float | None:
    """Return the typical step; None of a collective, which has the time of a call."""
    return None if row.call_s else row.step_s


def _throughput(row: CaseRow) -> float | None:
    return None if row.call_s else row.throughput


def _throughput_of_one(row: CaseRow) -> float | None:
    throughput = _throughput(row)
    return None if throughput is None else throughput / row.ranks


def _overhead(row: CaseRow) -> float | None:
    return None if row.efficiency is None else 1 - row.efficiency


def _targets_met(row: CaseRow) -> float | None:
    if row.targets is None or row.targets_met is None:
        return None
    return row.targets_met / row.targets


_FIGURES = (
    FigureColumn(
        "emulated_ranks",
        "emulated ranks",
        "of an emulated case: the ranks that its one rank runs as one of",
        _whole,
        "wide",
    ),
    FigureColumn(
        "step_s",
        "step ms",
        "the median over launches of the typical (median) step of all ranks",
        _ms,
        value=_step_s,
    ),
    FigureColumn(
        "level_s",
        "level ms",
        "what a step costs if nothing disturbs it; the verdict on the step time is on it",
        _ms,
        "page",
    ),
    FigureColumn(
        "baseline_level_s", "baseline level ms", "the level of the stored sessions", _ms, "page"
    ),
    FigureColumn(
        "p95_step_s", "95th pct. ms", "95 of 100 steps are not longer than this", _ms, "page"
    ),
    FigureColumn(
        "throughput", "{unit} /s", "throughput, over all ranks", _whole, value=_throughput
    ),
    FigureColumn(
        "",
        "a rank /s",
        "throughput ÷ number of ranks",
        _whole,
        "page",
        value=_throughput_of_one,
    ),
    FigureColumn(
        "speedup",
        "speed-\u00adup",
        "throughput ÷ that of one rank, at the same batch per rank (b) or of all ranks (g)",
        "{:.2f}".format,
    ),
    FigureColumn("efficiency", "effi\u00adciency", "speed-up ÷ number of ranks", percent_text),
    FigureColumn(
        "",
        "over\u00adhead",
        "the scaling overhead: the share of a step by which it is longer than the ideal, which is"
        " the step of one rank (b), or that ÷ ranks (g)",
        percent_text,
        "wide",
        value=_overhead,
    ),
    FigureColumn(
        "",
        "targets met",
        "of the case's absolute targets, the share that it meets",
        percent_text,
        "page",
        value=_targets_met,
    ),
    FigureColumn("call_s", "call µs", "one call of the collective", lambda s: f"{1e6 * s:,.1f}"),
    FigureColumn(
        "algorithm_bytes_per_s", "algbw GB/s", "algorithm bandwidth: payload ÷ time", gigabytes
    ),
    FigureColumn(
        "bus_bytes_per_s",
        "busbw GB/s",
        "bus bandwidth: comparable over numbers of ranks, and with the peak of the link",
        gigabytes,
    ),
    FigureColumn(
        "peak_memory",
        "memory MiB",
        "the peak of the rank that needs most",
        lambda value: _whole(value / 2**20),
        "page",
    ),
    FigureColumn("energy_j", "J a sample", "energy of all GPUs", _three),
    FigureColumn(
        "epoch_s", "epoch s", "computed: samples of an epoch ÷ throughput", _whole, "page"
    ),
    FigureColumn(
        "cost_per_million",
        "cost per million",
        "at the price that the suite states",
        _three,
        "page",
    ),
)
