"""The chart of a sweep: the step of each setting beside the suite's own, with its interval."""

from __future__ import annotations

import textwrap

import altair as alt

from ddp_perf.duel.sweep.halving import SweepResult
from ddp_perf.duel.sweep.report import conclusion_text
from ddp_perf.render.chart import BLUE, GREY, ROW, Chart, layered, points, tips, titled

_TITLE_WIDTH = 95


def sweep_chart(result: SweepResult) -> Chart:
    """Draw the change of each measured setting in per cent, the one that lasted longest on top."""
    settings = points(
        {
            "setting": one.name,
            "change": 100 * (one.ratio.ratio - 1),
            "low": 100 * ((one.ratio.interval or (one.ratio.ratio,))[0] - 1),
            "high": 100 * ((one.ratio.interval or (one.ratio.ratio,))[-1] - 1),
            "launches": one.launches,
            "dropped": "no" if one.dropped is None else f"in rung {one.dropped}",
            "best": one.name == result.best,
        }
        for one in result.settings
        if one.ratio is not None
    )
    y = alt.Y("setting:N", sort=None, title=None)
    label = "step against the suite's own setting, %; line: 95 % interval"
    colour = alt.condition("datum.best", alt.value(BLUE), alt.value(GREY))
    shown = tips("setting:N", "launches:Q", "dropped:N", "change:Q", "low:Q", "high:Q")
    chart = layered(
        points([{"own": 0}]).mark_rule(color=GREY).encode(alt.X("own:Q")),
        settings.mark_rule().encode(alt.X("low:Q"), y, alt.X2("high"), color=colour),
        settings.mark_point().encode(
            alt.X("change:Q", title=label), y, color=colour, tooltip=shown
        ),
    ).properties(height=ROW * len(result.settings))
    return titled(chart, result.case_id, *textwrap.wrap(conclusion_text(result), _TITLE_WIDTH))
