"""The charts of a session: scaling, step times, and the terms of a step."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import altair as alt
import msgspec
import numpy as np

from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.measurement import Measurement
from ddp_perf.diagnose.advice import GOOD
from ddp_perf.render.chart import (
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    ROW,
    SKY,
    YELLOW,
    Chart,
    Layer,
    Point,
    at,
    layered,
    points,
    tips,
    titled,
    zoomed,
)
from ddp_perf.render.units import (
    ABSENT,
    counted,
    milliseconds,
    percent_change,
    prefixed_number,
    short_names,
)
from ddp_perf.report.figures import SHOWN, PlotSeries, series_of, shown_step, term_values
from ddp_perf.report.rows import CaseRow
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.summary import step_level

_NAME = alt.Y("name:N", sort=None, title=None)
_LINEAR = 16  # ranks: with more, the axes are logarithmic, or the small numbers lie on each other
_PIECES = 60  # of an ideal line
_MOST_BARS = 40  # that a reader can distinguish

# Figures against the number of ranks, each curve with its ideal; without curves, as bars.


class _Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a row that is proportional to a power of the ranks, if they cost nothing."""

    of: Callable[[CaseRow], float | None]
    power: int  # of the ranks, and of 1 ÷ step time

    def value(self, row: CaseRow) -> float:
        value = self.of(row)
        assert value is not None  # only rows that have it are drawn
        return value

    def ideal(self, row: CaseRow, ranks: float) -> float:
        """Return the figure of so many ranks, if each is as fast as that of this row."""
        return self.value(row) * (ranks / row.ranks) ** self.power

    def of_step(self, row: CaseRow, ratio: float) -> float:
        """Return the figure if the step took ``ratio`` times as long."""
        return self.value(row) * ratio**-self.power


_THROUGHPUT = _Quantity(of=lambda row: row.throughput, power=1)
_EPOCH = _Quantity(of=lambda row: row.epoch_s, power=-1)


def scaling_charts(result: SuiteResult, rows: Sequence[CaseRow]) -> Iterator[tuple[str, Chart]]:
    """Yield the charts of a suite by name: throughput, speed-up and efficiency, time of an epoch.

    There is none if no case was measured.
    """
    measured = [row for row in rows if row.throughput is not None][:_MOST_BARS]
    if not measured:
        return
    unit = f"{measured[0].unit} a second"
    yield "throughput", _against_ranks(result, measured, _THROUGHPUT, ("Throughput", unit))
    if scaled := [row for row in measured if row.efficiency is not None]:
        yield "speedup_efficiency", _speedup_and_efficiency(result, scaled)
    if timed := [row for row in measured if row.epoch_s is not None]:
        title = ("Time of an epoch, computed", "seconds an epoch")
        yield "epoch_time_detailed", _against_ranks(result, timed, _EPOCH, title)


def _against_ranks(
    result: SuiteResult, rows: Sequence[CaseRow], quantity: _Quantity, words: tuple[str, str]
) -> Chart:
    title, unit = f"{_suite(result)}: {words[0]}", words[1]
    curves = series_of(result, rows)
    if not curves:
        values = [quantity.value(row) for row in rows]
        return titled(_bars(rows, values, prefixed_number, unit), title, _source(rows))
    short = short_names(curve.name for curve in curves)
    most = max(row.ranks for curve in curves for row in curve.rows)
    kind: Literal["linear", "log"] = "linear" if most <= _LINEAR else "log"
    ticks = sorted({row.ranks for curve in curves for row in curve.rows})
    ends = [0.5, most + 0.5] if kind == "linear" else [ticks[0], most]
    x = alt.X(
        "ranks:Q",
        axis=alt.Axis(values=ticks, format="d", grid=False),
        scale=alt.Scale(type=kind, domain=ends, base=2 if kind == "log" else alt.Undefined),
    )
    y = alt.Y("value:Q", title=unit, axis=alt.Axis(format="~s"), scale=alt.Scale(type=kind))
    found = [
        point for curve in curves for point in _curve_points(curve, quantity, short[curve.name])
    ]
    measured, ideals = points(found), points(_ideals(curves, quantity))
    colour = alt.Color("curve:N", title=None, sort=None)
    shown = tips("case:N", "ranks:Q", "value:Q", "fastest:Q", "slowest:Q", "ideal:Q", "baseline:N")
    layers = [
        ideals.mark_line(strokeDash=[5, 4], color=GREY).encode(x, y, alt.Detail("case:N")),
        measured.mark_rule().encode(x, alt.Y("slowest:Q"), alt.Y2("fastest"), color=colour),
        zoomed(measured.mark_line(point=True).encode(x, y, color=colour, tooltip=shown)),
    ]
    if before := [point for point in found if "low" in point]:
        band = points(before).mark_bar(width=12, color=ORANGE, opacity=0.35)
        layers.insert(0, band.encode(x, alt.Y("low:Q"), alt.Y2("high")))
    below = "dashed: as many times one rank; bars: the baseline and its tolerance"
    return titled(layered(*layers), title, below, _source(rows))


def _curve_points(curve: PlotSeries, quantity: _Quantity, name: str) -> Iterator[Point]:
    for row in curve.rows:
        value = quantity.value(row)
        steps = [s / row.step_s for s in (row.step_low_s, row.step_high_s) if s and row.step_s]
        fastest, slowest = [quantity.of_step(row, ratio) for ratio in steps] or [value, value]
        point: dict[str, object] = {
            "curve": name,
            "case": row.case,
            "ranks": row.ranks,
            "value": value,
            "fastest": fastest,
            "slowest": slowest,
            "ideal": quantity.ideal(curve.rows[0], row.ranks),
            "baseline": ABSENT,
        }
        if row.baseline_level_s and row.level_s:
            before = row.baseline_level_s / row.level_s
            low, high = sorted(
                quantity.of_step(row, before * (1 + sign * curve.tolerance)) for sign in (-1, 1)
            )
            words = f"{prefixed_number(low)} to {prefixed_number(high)}"
            point |= {"low": low, "high": high, "baseline": words}
        yield point


def _ideals(curves: Sequence[PlotSeries], quantity: _Quantity) -> Iterator[Point]:
    """Yield the points of a line from each single-rank run; curves may share one."""
    most: dict[str, int] = {}
    singles = {curve.rows[0].case: curve.rows[0] for curve in curves}
    for curve in curves:
        case = curve.rows[0].case
        most[case] = max(most.get(case, 1), curve.rows[-1].ranks)
    for case, single in singles.items():
        for ranks in np.geomspace(single.ranks, most[case], _PIECES).tolist():
            yield {"case": case, "ranks": ranks, "value": quantity.ideal(single, ranks)}


def _speedup_and_efficiency(result: SuiteResult, rows: Sequence[CaseRow]) -> Chart:
    """Draw both as bars, with the ideal of each, and the least efficiency that is called good."""
    speedups = [row.speedup or 0.0 for row in rows]
    ideal = [
        {"name": name, "ideal": row.ranks} for row, name in zip(rows, _names(rows), strict=True)
    ]
    tick = points(ideal).mark_tick(color=GREY, thickness=3).encode(_NAME, alt.X("ideal:Q"))
    speedup = _bars(rows, speedups, "{:.2f} ×".format, "speed-up against one rank", tick)
    values = [100 * (row.efficiency or 0.0) for row in rows]
    good = at([100 * GOOD, 100], ("good", "ideal"))
    efficiency = _bars(rows, values, "{:.0f} %".format, "efficiency, %", good)
    return alt.vconcat(
        titled(speedup, f"{_suite(result)}: Speed-up", "a tick is at the ideal", _source(rows)),
        titled(efficiency, f"{_suite(result)}: Efficiency"),
    )


def _bars(
    rows: Sequence[CaseRow],
    values: Sequence[float],
    write: Callable[[float], str],
    label: str,
    *marks: Layer,
) -> alt.LayerChart:
    bars = points(
        {"name": name, "value": value, "text": write(value), "case": row.case}
        for row, name, value in zip(rows, _names(rows), values, strict=True)
    )
    x = alt.X("value:Q", title=label, axis=alt.Axis(format="~s"))
    drawn = bars.mark_bar().encode(x, _NAME, tooltip=tips("case:N", "text:N"))
    text = bars.mark_text(align="left", dx=4).encode(x, _NAME, alt.Text("text:N"))
    chart: alt.LayerChart = layered(drawn, text, *marks).properties(height=ROW * len(rows))
    return chart


def _names(rows: Sequence[CaseRow]) -> list[str]:
    short = short_names(row.case for row in rows)
    return [short[row.case] for row in rows]


def _suite(result: SuiteResult) -> str:
    return result.suite + (", slowed on purpose" if result.injections else "")


def _source(rows: Sequence[CaseRow]) -> str:
    """Return where the figures are from, and what they are."""
    fewest, most = (end(row.launches for row in rows) for end in (min, max))
    commit = f", commit {rows[0].commit}" if rows[0].commit else ""
    launches = counted(most, "launch") if fewest == most else f"{fewest} to {most} launches"
    how = f"median of {launches}" if most > 1 else "one launch"
    return f"{rows[0].accelerator}, {rows[0].date[:10]}{commit}; {how} of each case"


# Step times: of each launch and rank of a case, and of all cases against their baselines.


_QUANTILES = {"low": 0.05, "lower": 0.25, "median": 0.5, "upper": 0.75, "high": 0.95}


def step_charts(measurement: Measurement, baseline_s: float | None) -> Iterator[Chart]:
    """Yield the steps of each launch, which are judged, and of each rank in all launches."""
    launches = [(f"launch {one.round + 1}", one.step_s) for one in measurement.launches]
    yield _boxes(launches, "Steps of each launch", baseline_s)
    ranks = range(measurement.case.run_ranks)
    if len(ranks) > 1:
        steps = [
            (f"rank {rank}", [s for one in measurement.launches for s in one.ranks[rank].step_s])
            for rank in ranks
        ]
        yield _boxes(steps, "Steps of each rank, all launches", None)


def _boxes(
    steps: Sequence[tuple[str, Sequence[float]]], title: str, baseline_s: float | None
) -> Chart:
    """Draw from the 5 to the 95 % quantile a line, from 25 to 75 % a box, at the median a tick."""
    rows = points(
        {"name": name, "steps": len(each)}
        | {end: 1e3 * float(np.quantile(each, share)) for end, share in _QUANTILES.items()}
        for name, each in steps
    )
    x = alt.X("low:Q", title="ms a step", scale=alt.Scale(zero=False))
    shown = tips("name:N", "steps:Q", *(f"{quantile}:Q" for quantile in _QUANTILES))
    layers: list[Layer] = [
        rows.mark_rule().encode(x, _NAME, alt.X2("high"), tooltip=shown),
        rows.mark_bar(size=8).encode(alt.X("lower:Q"), _NAME, alt.X2("upper"), tooltip=shown),
        rows.mark_tick(thickness=2, size=12, color=GREY).encode(
            _NAME, alt.X("median:Q"), tooltip=shown
        ),
    ]
    if baseline_s is not None:
        layers.append(at([1e3 * baseline_s], ["baseline"]))
    chart = layered(*layers).properties(height=15 * len(steps))
    return titled(chart, title, "line: 5 to 95 %; box: 25 to 75 %; tick: the median")


def launches_chart(result: SuiteResult, rows: Sequence[CaseRow]) -> Chart | None:
    """Draw each launch of each case against its baseline, or else its own median; None: no launch.

    This is all that is drawn of a case that is green.
    """
    names = short_names(result.measurements)
    found = [point for row in rows for point in _launch_points(result, row, names[row.case])]
    if not found:
        return None
    launches = points(found)
    tolerances = points(
        {"name": names[row.case], "low": -tolerance, "high": tolerance}
        for row in rows
        for tolerance in [result.measurements[row.case].case.tolerances.step_time]
    )
    x = alt.X("change:Q", title="step of a launch against the baseline", axis=alt.Axis(format="+%"))
    band = tolerances.mark_bar(size=ROW - 4, opacity=0.2, color=SKY).encode(
        alt.X("low:Q"), _NAME, alt.X2("high")
    )
    dots = launches.mark_point(opacity=0.7).encode(x, _NAME)
    dots = dots.encode(tooltip=tips("case:N", "launch:Q", "step:N", "against:N"))
    chart = layered(band, dots).properties(height=ROW * len(rows))
    below = "band: the tolerance; a case without a baseline is shown against its own median"
    return titled(chart, "Each launch of each case", below)


def _launch_points(result: SuiteResult, row: CaseRow, name: str) -> Iterator[Point]:
    """Yield the level of each launch of a case, as a change from its baseline or own median."""
    launches = result.measurements[row.case].launches
    levels = [step_level(launch) for launch in launches]
    for launch, level in zip(launches, levels, strict=True):
        ratio = level / (row.baseline_level_s or statistics.median(levels))
        yield {
            "name": name,
            "case": row.case,
            "launch": launch.round + 1,
            "change": ratio - 1,
            "step": f"{milliseconds(level)} ms",
            "against": percent_change(ratio),
        }


# The terms of each case's step, stacked.


# In the order of SHOWN.
_TERM_COLOURS = (SKY, ORANGE, GREEN, RED, YELLOW, "#b0b7be", PINK, "#8fa8ff", "#dfe3e8")


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """One case: its terms and its timed step."""

    name: str
    step: Decomposition
    step_s: float

    def parts(self) -> dict[str, float]:
        """Return the seconds of each term that has a length: it was seen, and is above 0."""
        values = term_values(self.step, self.step_s)
        return {term: value for term, value in values.items() if value is not None and value > 0}


def case_stacks(result: SuiteResult, rows: Sequence[CaseRow]) -> list[Stack]:
    """Return the stacks of the cases whose terms are shown."""
    names = short_names(result.measurements)
    return [
        Stack(name=names[row.case], step=step, step_s=row.step_s)
        for row in rows
        if row.step_s is not None
        if (step := shown_step(result.summaries.get(row.case, ()), row.step_s)) is not None
    ]


def term_chart(stacks: Sequence[Stack]) -> Chart:
    """Draw a stack for each case. A term that was not seen, or is below 0, has no length."""
    terms = points(
        {"name": one.name, "term": term, "ms": 1e3 * value, "order": SHOWN.index(term)}
        for one in stacks
        for term, value in one.parts().items()
    )
    scale = alt.Scale(domain=[*SHOWN], range=[*_TERM_COLOURS])
    colour = alt.Color("term:N", title=None, scale=scale)
    bars = terms.mark_bar().encode(
        alt.X("sum(ms):Q", title="ms a step"),
        _NAME,
        colour,
        alt.Order("order:O"),
        tooltip=tips("name:N", "term:N", "ms:Q"),
    )
    ends = points(
        {
            "name": one.name,
            "end": 1e3 * sum(one.parts().values()),
            "text": f"{milliseconds(one.step_s)} ms",
        }
        for one in stacks
    )
    text = ends.mark_text(align="left", dx=4).encode(_NAME, alt.X("end:Q"), alt.Text("text:N"))
    chart = layered(bars, text).properties(height=ROW * len(stacks))
    return titled(chart, "Where the time of a step goes", "at the right of a bar: the timed step")
