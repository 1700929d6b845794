"""The chart of a prediction: speed-up over ranks, with points, extrapolation and limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import altair as alt

from ddp_perf.render.chart import BLUE, GREY, RED, Chart, Point, layered, points, tips, titled
from ddp_perf.scaling.prediction import Prediction
from ddp_perf.scaling.text import curve_title

_LIMIT, _MODEL = "only compute: the physical limit", "extrapolated: α-β model, 90 % band"


def prediction_chart(predictions: Sequence[Prediction]) -> Chart:
    """Draw one panel for each predicted curve: speed-up over ranks."""
    return alt.vconcat(*(_panel(one) for one in predictions if one.refusal is None))


def _panel(prediction: Prediction) -> alt.LayerChart:
    ranks = [step.world_size for step in prediction.steps]
    x = alt.X(
        "ranks:Q",
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=ranks, format="d", labelAngle=-45, grid=False),
    )
    kind = "strong" if prediction.series.strong else "weak"
    y = alt.Y(
        "speed-up:Q",
        title=f"speed-up ({kind} scaling) against one rank",
        scale=alt.Scale(type="log", domain=[0.5, 2 * max(ranks)], nice=False, clamp=True),
    )
    lines = points(_lines(prediction))
    checks = [f"cross-check {check.law}" for check in prediction.cross_checks]
    names = [_LIMIT, _MODEL, *checks, *_latency_limits(prediction)]
    colours = [GREY, BLUE, *[RED for _ in checks]] + [GREY] * (len(names) - len(checks) - 2)
    dashes = [[1, 0], [6, 4], *[[6, 2, 1, 2] for _ in checks]] + [[2, 3]] * len(names)
    line = lines.mark_line().encode(
        x,
        y,
        alt.Color("line:N", title=None, scale=alt.Scale(domain=names, range=colours)),
        strokeDash=alt.StrokeDash(
            "line:N", title=None, scale=alt.Scale(domain=names, range=dashes[: len(names)])
        ),
        tooltip=tips("line:N", "ranks:Q", "speed-up:Q"),
    )
    band = points(
        {
            "ranks": step.world_size,
            "low": _speedup(prediction, step.world_size, step.step_s.high),
            "high": _speedup(prediction, step.world_size, step.step_s.low),
        }
        for step in prediction.steps
    )
    given = points(
        {
            "ranks": step.world_size,
            "speed-up": _speedup(prediction, step.world_size, step.given_s),
            "point": f"{prediction.series.source}, {'fitted' if step.fitted else 'held out'}",
            "fitted": step.fitted,
        }
        for step in prediction.steps
        if step.given_s is not None
    )
    fill = alt.condition("datum.fitted", alt.value("black"), alt.value("white"))
    marks = given.mark_point(stroke="black", filled=False).encode(
        x, y, fill=fill, tooltip=tips("point:N", "ranks:Q", "speed-up:Q")
    )
    area = band.mark_area(opacity=0.15, clip=True).encode(x, alt.Y("low:Q"), alt.Y2("high"))
    below = "filled points are fitted; hollow ones are held out"
    return titled(layered(area, line, marks), curve_title(prediction.series), below)


def _lines(prediction: Prediction) -> Iterator[Point]:
    ranks = [step.world_size for step in prediction.steps]
    steps = {_MODEL: {step.world_size: step.step_s.value for step in prediction.steps}}
    for check in prediction.cross_checks:
        steps[f"cross-check {check.law}"] = {n: check.step_s[n].value for n in ranks}
    for name, of_ranks in steps.items():
        for n, step_s in of_ranks.items():
            yield {"line": name, "ranks": n, "speed-up": _speedup(prediction, n, step_s)}
    for n in ranks:
        yield {"line": _LIMIT, "ranks": n, "speed-up": n}
        for name, limit in _latency_limits(prediction).items():
            yield {"line": name, "ranks": n, "speed-up": limit}


def _latency_limits(prediction: Prediction) -> dict[str, float]:
    """Return the limits that are near the points, by their names."""
    most = 2 * max(step.world_size for step in prediction.steps)
    return {
        f"limit of the latency of a {name}": limit.value
        for name, limit in prediction.speedup_limit.items()
        if math.isfinite(limit.value) and limit.value < most
    }


def _speedup(prediction: Prediction, ranks: int, step_s: float) -> float:
    """Return the speed-up against one rank of a step of N ranks."""
    batches = 1 if prediction.series.strong else ranks
    return batches * _single_s(prediction) / step_s


def _single_s(prediction: Prediction) -> float:
    """Return the step time of one rank: as given, or else as fitted (the compute)."""
    given = [s.given_s for s in prediction.steps if s.world_size == 1 and s.given_s is not None]
    return given[0] if given else prediction.steps[0].parts["compute"]
