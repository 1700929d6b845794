"""Charts, described once: a page draws them for hover and zoom, and image files show the same."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import altair
import vl_convert
from altair.utils import schemapi
from markupsafe import Markup

Layer = altair.Chart | altair.LayerChart
Chart = Layer | altair.VConcatChart
Point = Mapping[str, Any]  # a figure and its names, by field

# Okabe and Ito's colours, which colour-blind readers distinguish.
BLUE, RED, GREEN, ORANGE, SKY, PINK, YELLOW = (
    *("#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#f0e442"),
)
GREY = "#8b949e"  # of what is no figure, such as a limit; it is seen on white and on black
COLOURS = (BLUE, RED, GREEN, PINK, ORANGE, SKY, GREY)
ROW = 20  # pixels of a bar
_WIDTH = 600  # pixels of an image
_MOST_NAME = 220  # pixels
_CONFIG = {
    "font": "system-ui, sans-serif",
    "background": None,
    "view": {"stroke": None},
    "axis": {"labelLimit": _MOST_NAME, "titleFontWeight": "normal", "grid": False},
    "axisQuantitative": {"grid": True},
    "axisY": {"titleLimit": 400},
    "legend": {"orient": "bottom", "columns": 2, "labelLimit": 400, "symbolLimit": 60},
    "title": {"anchor": "start", "fontSize": 12, "subtitleFontSize": 10},
    "range": {"category": list(COLOURS)},
    "mark": {"color": BLUE},
    "bar": {"color": SKY},
    "rule": {"color": GREY},
    "point": {"filled": True, "size": 40},
}


def points(rows: Iterable[Point]) -> altair.Chart:
    """Return a chart of these figures, without a mark yet. Each row names the same fields."""
    with schemapi.debug_mode(False):  # to validate each figure takes a second for a thousand rows
        return altair.Chart(altair.InlineData(values=[dict(row) for row in rows]))


def layered(*layers: Layer) -> altair.LayerChart:
    """Return the layers in one frame, the first one below the others."""
    return altair.LayerChart(layer=list(layers))


def titled(layers: altair.LayerChart, title: str, *below: str) -> altair.LayerChart:
    """Return the chart with a title, and lines below it. A reader who cannot see it hears them."""
    text = altair.TitleParams(title, subtitle=list(below))
    chart: altair.LayerChart = layers.properties(title=text, description=". ".join([title, *below]))
    return chart


def tips(*fields: str) -> list[altair.Tooltip]:
    """Return what a reader sees who points at a mark: words, and figures with four digits."""
    return [
        altair.Tooltip(field, format=",.4~r") if field.endswith(":Q") else altair.Tooltip(field)
        for field in fields
    ]


def at(
    values: Iterable[float], names: Iterable[str], channel: Literal["x", "y"] = "x"
) -> altair.LayerChart:
    """Return a dashed line at each value, with its name."""
    rows = points({channel: value, "name": name} for value, name in zip(values, names, strict=True))
    place = {channel: altair.X("x:Q") if channel == "x" else altair.Y("y:Q")}
    line = rows.mark_rule(strokeDash=[4, 3], color=GREY).encode(**place)
    if channel == "x":
        text = rows.mark_text(color=GREY, dy=-4, baseline="bottom")
        edge = {"y": altair.value(0)}
    else:
        text = rows.mark_text(color=GREY, dx=-4, align="right", baseline="bottom")
        edge = {"x": altair.value("width")}
    return layered(line, text.encode(text=altair.Text("name:N"), **place, **edge))


def zoomed(chart: altair.Chart) -> altair.Chart:
    """Return the layer whose axes a reader moves by dragging, and zooms with Ctrl and the wheel.

    The wheel alone scrolls the page. A double click shows the whole again.
    """
    wheel = "wheel![event.ctrlKey || event.metaKey]"
    shown: altair.Chart = chart.add_params(altair.selection_interval(bind="scales", zoom=wheel))
    return shown


def image(chart: Chart, suffix: str = ".png") -> bytes:
    """Return the chart as an image on white: as SVG if its file ends so, and else as PNG."""
    spec = chart.to_dict(validate=False)
    parts = [{"width": _WIDTH} | part for part in spec.get("vconcat", ())]
    spec |= {"vconcat": parts} if parts else {"width": _WIDTH}
    spec["background"] = "white"
    if suffix == ".svg":
        return str(vl_convert.vegalite_to_svg(spec, config=_CONFIG)).encode()
    return bytes(vl_convert.vegalite_to_png(spec, config=_CONFIG, scale=2))


class Picture(NamedTuple):
    """A chart of a page: what it shows, in words, and the description that a script draws."""

    title: str
    below: Sequence[str]
    script: Markup


def pictures(chart: Chart) -> Iterator[Picture]:
    """Yield the charts of a page, each as wide as its place, with its title as text that wraps."""
    spec = chart.to_dict(validate=False)
    shared = {
        "$schema": spec.pop("$schema"),
        "datasets": _by_column(spec.pop("datasets", {})),
    }
    for part in spec.get("vconcat", [spec]):
        head = part.pop("title")
        drawn = shared | {"width": "container"} | part | {"config": _CONFIG}
        text = json.dumps(drawn, separators=(",", ":")).replace("<", "\\u003c")  # no </script>
        script = Markup('<script type="application/json">{}</script>').format(Markup(text))  # noqa: S704 - without "<"
        yield Picture(head["text"], head.get("subtitle", ()), script)


def _by_column(datasets: Mapping[str, Sequence[Point]]) -> dict[str, dict[str, list[Any]]]:
    """Return the figures by field, whose name a page has once then: a third of the size.

    A row has None for a field that it lacks.
    """
    by_column = {}
    for name, rows in datasets.items():
        fields = dict.fromkeys(field for row in rows for field in row)
        by_column[name] = {field: [row.get(field) for row in rows] for field in fields}
    return by_column


@functools.cache
def page_script() -> Markup:
    """Return Vega, which draws the charts of a page without network: 0.9 MB."""
    return Markup(vl_convert.javascript_bundle())  # type: ignore[call-arg]  # noqa: S704 - Vega's own
