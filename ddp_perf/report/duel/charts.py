"""The charts of a duel: its pairs in order of time, each pair from A to B, and all timed steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

import altair as alt
import msgspec
import numpy as np

from ddp_perf.core.verdict import PairedVerdict
from ddp_perf.duel.values import CaseDuel
from ddp_perf.render.chart import (
    BLUE,
    GREEN,
    GREY,
    RED,
    Chart,
    Point,
    layered,
    points,
    tips,
    titled,
    zoomed,
)
from ddp_perf.report.charts import Stack, term_chart
from ddp_perf.report.duel.rows import DuelRow
from ddp_perf.stats.interval import mean_estimate
from ddp_perf.stats.pairs import without_apart
from ddp_perf.stats.step_decomposition import decompose, typical

_WIDEST = 4.0  # tolerances from the ratio 1 that are shown at least as far as they go
_SLOW = 2.0  # tolerances above the median of its side: a slow launch
_CURVE = 60  # points of a distribution
_SIDES = alt.Scale(domain=["A", "B"], range=[BLUE, RED])


def case_charts(case: CaseDuel, row: DuelRow) -> Iterator[Chart]:
    """Yield the pairs by the figure of the step that decides, all timed steps, and their terms."""
    step = row.step
    if step is not None and (pairs := list(_plotted(row, step.metric))):
        yield ratio_chart(pairs, step.tolerance, step.verdict)
        aa = [1e3 * figures[step.metric] for figures in row.aa if step.metric in figures]
        yield pair_chart(pairs, aa)
    sides = ((pair.a for pair in case.pairs), (pair.b for pair in case.pairs))
    yield step_curves(*([1e3 * s for launch in side for s in launch.step_s] for side in sides))
    if len(stacks := list(_stacks(case))) == 2:
        yield term_chart(stacks)


def _plotted(row: DuelRow, metric: str) -> Iterator[PlottedPair]:
    for pair in row.pairs:
        if metric in pair.a and metric in pair.b:
            a, b = 1e3 * pair.a[metric], 1e3 * pair.b[metric]
            yield PlottedPair(a=a, b=b, first=pair.first)


def _stacks(case: CaseDuel) -> Iterator[Stack]:
    """Yield the terms of the typical step of each side that was probed."""
    for name in ("A", "B"):
        launches = [pair.a if name == "A" else pair.b for pair in case.pairs]
        probed = (decompose(launch) for launch in launches)
        step = typical([found for found in probed if found is not None])
        if step is not None:
            yield Stack(name=name, step=step, step_s=step.step_s)


class PlottedPair(msgspec.Struct, frozen=True, kw_only=True):
    """A pair with the figure of each side, in ms."""

    a: float
    b: float
    first: str  # the side that was launched first

    @property
    def percent(self) -> float:
        return 100 * (self.b / self.a - 1)


def slow_sides(pairs: Sequence[PlottedPair], tolerance: float) -> list[str]:
    """Return for each pair the sides whose launch was slow: "", "A", "B" or "A and B".

    A slow launch is by two tolerances above the median of its side.
    """
    most = 1 + _SLOW * tolerance
    limits = [
        most * statistics.median(values)
        for values in ([pair.a for pair in pairs], [pair.b for pair in pairs])
    ]
    return [
        " and ".join(
            side
            for side, value, limit in zip("AB", (pair.a, pair.b), limits, strict=True)
            if value > limit
        )
        for pair in pairs
    ]


def ratio_chart(pairs: Sequence[PlottedPair], tolerance: float, verdict: PairedVerdict) -> Chart:
    """Draw the ratio of each pair in order of time, with the running mean and its 95 % interval.

    A pair beyond the axis is a triangle at its edge. Pairs that the verdict sets apart are not in
    the mean either.
    """
    low, high = _limits([pair.percent for pair in pairs], tolerance, verdict.interval)
    slow = slow_sides(pairs, tolerance)
    marks = points(
        {
            "pair": number,
            "shown": min(max(pair.percent, low), high),
            "beyond": "no" if low <= pair.percent <= high else "up" if pair.percent > 0 else "down",
            "B against A": f"{pair.percent:+.1f} %",
            "A": f"{pair.a:.4g} ms",
            "B": f"{pair.b:.4g} ms",
            "first": pair.first,
            "slow": sides or "neither",
        }
        for number, (pair, sides) in enumerate(zip(pairs, slow, strict=True), 1)
    )
    x = alt.X(
        "pair:Q",
        axis=alt.Axis(format="d", tickMinStep=1, grid=False),
        scale=alt.Scale(domain=[0.5, len(pairs) + 1], nice=False),
    )
    y = alt.Y("shown:Q", title="B against A, %", scale=alt.Scale(domain=[low, high], nice=False))
    shape = alt.Scale(domain=["no", "up", "down"], range=["circle", "triangle-up", "triangle-down"])
    dots = marks.mark_point().encode(
        x,
        y,
        alt.Shape("beyond:N", scale=shape, legend=None),
        color=alt.condition("datum.slow == 'neither'", alt.value(BLUE), alt.value(RED)),
        tooltip=tips("pair:Q", "B against A:N", "A:N", "B:N", "first:N", "slow:N"),
    )
    band = points([{"low": -100 * tolerance, "high": 100 * tolerance}])
    running = points(_running(pairs, verdict.apart))
    layers = [
        band.mark_rect(opacity=0.14, color=GREEN).encode(alt.Y("low:Q"), alt.Y2("high")),
        running.mark_area(opacity=0.3, clip=True).encode(x, alt.Y("low:Q"), alt.Y2("high")),
        running.mark_line(clip=True).encode(x, alt.Y("mean:Q")),
        points([{"zero": 0}]).mark_rule(color=GREY).encode(alt.Y("zero:Q")),
        zoomed(dots),
    ]
    if verdict.interval is not None:
        ends = [min(max(100 * (end - 1), low), high) for end in verdict.interval]
        interval = points([{"pair": len(pairs) + 0.6, "low": ends[0], "high": ends[1]}])
        layers.append(
            interval.mark_rule(strokeWidth=4, color=GREEN).encode(x, alt.Y("low:Q"), alt.Y2("high"))
        )
    return titled(
        layered(*layers),
        "Each pair in order of time",
        "line and area: the mean so far, 95 % interval; bar at the right: the verdict's interval",
        "band: the tolerance; orange: a launch of the pair was slow; triangle: beyond the axis",
    )


def _limits(
    percents: Sequence[float], tolerance: float, verdict: tuple[float, float] | None
) -> tuple[float, float]:
    """Return the ends of the axis: the middle nine tenths of the pairs, and all that is judged."""
    low, high = np.quantile(percents, (0.05, 0.95)).tolist()
    judged = [-150 * tolerance, 150 * tolerance, *(100 * (end - 1) for end in verdict or ())]
    reach = 100 * _WIDEST * tolerance  # what lies nearer is never cut off
    near = [percent for percent in percents if abs(percent) <= reach]
    least, most = min(low, *judged, *near), max(high, *judged, *near)
    margin = 0.05 * (most - least)
    return least - margin, most + margin


def _running(pairs: Sequence[PlottedPair], apart: int) -> Iterator[Point]:
    """Yield the mean of the pairs so far, from the second one on, with its interval."""
    logs = np.log([pair.b / pair.a for pair in pairs])
    for count in range(2, len(pairs) + 1):
        found = mean_estimate(without_apart(logs[:count], min(apart, count // 3)).tolist())
        if found.low is not None and found.high is not None:
            ends = (found.low, found.value, found.high)
            low, mean, high = (100 * math.expm1(min(end, 10.0)) for end in ends)
            yield {"pair": count, "low": low, "mean": mean, "high": high}


def pair_chart(pairs: Sequence[PlottedPair], aa: Sequence[float]) -> Chart:
    """Draw each pair as a line from side A to side B. ``aa``: launches of A before the pairs."""
    lines = points(
        {"pair": number, "side": side, "ms": value, "grew": pair.b > pair.a}
        for number, pair in enumerate(pairs, 1)
        for side, value in (("A", pair.a), ("B", pair.b))
    )
    medians = points(
        {"side": side, "ms": statistics.median(values), "text": f"{statistics.median(values):.4g}"}
        for side, values in (("A", [pair.a for pair in pairs]), ("B", [pair.b for pair in pairs]))
    )
    sides = ["A alone", "A", "B"] if aa else ["A", "B"]
    x = alt.X(
        "side:N",
        title=None,
        sort=sides,
        scale=alt.Scale(domain=sides, padding=0.7),
        axis=alt.Axis(labelAngle=0),
    )
    y = alt.Y("ms:Q", title="ms a step", scale=alt.Scale(zero=False))
    colour = alt.condition("datum.grew", alt.value(RED), alt.value(GREEN))
    layers = [
        lines.mark_line(opacity=0.6).encode(x, y, alt.Detail("pair:Q"), color=colour),
        lines.mark_point().encode(x, y, tooltip=tips("pair:Q", "side:N", "ms:Q")),
        medians.mark_tick(color=GREY, thickness=2, size=24).encode(x, y),
        medians.mark_text(dx=16, align="left", fontWeight="bold").encode(x, y, alt.Text("text:N")),
    ]
    if aa:
        alone = points({"side": "A alone", "ms": value} for value in aa)
        layers.append(alone.mark_point(color=GREY).encode(x, y, tooltip=tips("side:N", "ms:Q")))
    below = "orange: B took longer; number: the median of a side"
    return titled(layered(*layers), "Each pair from A to B", below)


def step_curves(a_ms: Sequence[float], b_ms: Sequence[float]) -> Chart:
    """Draw for both sides the share of all steps that are not longer than a time.

    The axis ends at the 99th percentile: a few stalls would hide the rest.
    """
    shares = np.linspace(0.0, 0.99, _CURVE)
    curves = points(
        {"side": side, "ms": ms, "share": share}
        for side, steps in (("A", a_ms), ("B", b_ms))
        for ms, share in zip(np.quantile(steps, shares).tolist(), shares.tolist(), strict=True)
    )
    line = curves.mark_line().encode(
        alt.X("ms:Q", title="ms a step", scale=alt.Scale(zero=False)),
        alt.Y("share:Q", title="steps that are no longer", axis=alt.Axis(format="%")),
        alt.Color("side:N", scale=_SIDES, title=None),
        alt.Order("share:Q"),
        strokeDash=alt.StrokeDash("side:N", legend=None),
        tooltip=tips("side:N", "share:Q", "ms:Q"),
    )
    return titled(layered(zoomed(line)), "All timed steps")
