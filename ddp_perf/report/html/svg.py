"""SVG elements whose text and attributes are escaped, and the frame of a plot.

The SVG is written without a library: hundreds of plots take less than a second and a few kB each,
and they use the page's own light or dark colours.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from markupsafe import Markup, escape

from ddp_perf.report.html.scale import Scale, coordinate

_LINE = 12.0  # pixels between lines of text


def element(name: str, *children: Markup | str, **attributes: str | float) -> Markup:
    """Return an element. Children and attributes that are no Markup are escaped.

    ``text_anchor`` is written as text-anchor, and ``class_`` as class.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{shown}>{''.join(map(escape, children))}</{name}>")


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return path(f"M{coordinate(x1)} {coordinate(y1)}L{coordinate(x2)} {coordinate(y2)}", class_)


def path(d: str, class_: str) -> Markup:
    return element("path", d=d, class_=class_)


def rect(
    x: float, y: float, width: float, height: float, class_: str, tip: str | None = None
) -> Markup:
    """Return a rectangle. ``tip`` is shown while a pointer rests on it."""
    tips = [] if tip is None else [element("title", tip)]
    return element("rect", *tips, x=x, y=y, width=width, height=height, class_=class_)


def text(x: float, y: float, content: str, anchor: str = "start", class_: str = "") -> Markup:
    named = {"class_": class_} if class_ else {}
    return element("text", content, x=x, y=y, text_anchor=anchor, **named)


def picture(width: float, height: float, title: str, parts: Iterable[Markup]) -> Markup:
    """Return a whole picture, as wide as its column, with ``title`` as its accessible name."""
    return element(
        "svg",
        element("title", title),
        *parts,
        viewBox=f"0 0 {coordinate(width)} {coordinate(height)}",
        role="img",
    )


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """The two scales of a plot."""

    x: Scale
    y: Scale  # starts at the bottom, ends at the top

    def bottom_axis(self, ticks: Iterable[tuple[float, str]], label: str) -> Markup:
        """Draw ticks with their text, and the label with its unit below them."""
        y = self.y.start
        parts = [text(self.x(at), y + _LINE, name, "middle") for at, name in ticks]
        parts.append(line(self.x.start, y, self.x.end, y, "axis"))
        middle = (self.x.start + self.x.end) / 2
        parts.append(text(middle, y + 2.3 * _LINE, label, "middle", "label"))
        return Markup("").join(parts)

    def left_axis(self, ticks: Iterable[tuple[float, str]], label: str) -> Markup:
        """Draw ticks with a thin line across, and the label above them, in reading direction."""
        parts = []
        for at, name in ticks:
            y = self.y(at)
            parts.append(line(self.x.start, y, self.x.end, y, "grid"))
            parts.append(text(self.x.start - 5, y + 4, name, "end"))
        parts.append(text(0, self.y.end - _LINE, label, class_="label"))
        return Markup("").join(parts)

    def vertical(self, at: float, class_: str, label: str = "", anchor: str = "middle") -> Markup:
        """Draw a reference line, with its name above it."""
        x = self.x(at)
        named = text(x, self.y.end - 4, label, anchor, "note") if label else Markup("")
        return line(x, self.y.start, x, self.y.end, class_) + named


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else coordinate(value)
