"""The chart of a power curve: the share that was found, by the observed slow-down."""

from __future__ import annotations

import textwrap

import altair as alt

from ddp_perf.render.chart import Chart, at, layered, points, tips, titled
from ddp_perf.selftest.curve import MOSTLY, PowerCurve, conclusion_of

_MOST = 30  # per cent: the largest slow-down drawn
_TITLE_WIDTH = 95


def power_chart(curve: PowerCurve) -> Chart:
    """Draw the share of detected slow-downs against their size, with 95 % intervals of both.

    The axis of the size is linear to about 2 %, and logarithmic beyond: 2, 3, 5, 10 and 20 % are
    well apart.
    """
    found = [point for point in curve.points if point.found.value is not None]
    marks = points(
        {
            "injected": f"{point.percent} %",
            "found": 100 * (point.found.value or 0.0),
            "least": 100 * point.found.interval[0],
            "most": 100 * point.found.interval[1],
            "slow-down": 100 * (point.slow_down.value if point.slow_down else 0.0),
            "low": 100 * (point.slow_down.interval[0] if point.slow_down else 0.0),
            "high": 100 * (point.slow_down.interval[1] if point.slow_down else 0.0),
            "trials": f"{point.found.found} of {point.found.trials} found",
            "launches": point.launches,
        }
        for point in found
    )
    x = alt.X(
        "slow-down:Q",
        title="observed slow-down, %",
        scale=alt.Scale(type="symlog", constant=2, domain=[-2, _MOST], clamp=True),
        axis=alt.Axis(values=[point.percent for point in curve.points], format="d"),
    )
    y = alt.Y("found:Q", title="trials found, %", scale=alt.Scale(domain=[0, 100]))
    shown = tips("injected:N", "trials:N", "launches:Q", "slow-down:Q", "low:Q", "high:Q")
    names = marks.transform_calculate(text="datum.injected + ': ' + datum.trials")
    chart = layered(
        at([100 * MOSTLY], [f"{100 * MOSTLY:.0f} %"], "y"),
        at([100 * curve.tolerance], ["tolerance"]),
        marks.mark_rule().encode(alt.X("low:Q"), y, alt.X2("high")),
        marks.mark_rule().encode(x, alt.Y("least:Q"), alt.Y2("most")),
        marks.mark_point().encode(x, y, tooltip=shown),
        names.mark_text(dx=6, dy=8, align="left", fontSize=9).encode(x, y, alt.Text("text:N")),
    )
    conclusion = textwrap.wrap(f"{conclusion_of(curve)}.", _TITLE_WIDTH)
    title = f"What the gate finds of {curve.case_id} on {curve.environment.accelerator}"
    return titled(chart, title, *conclusion)
