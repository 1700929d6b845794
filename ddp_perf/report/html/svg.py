"""SVG elements whose text and attributes are escaped, and the frame and scale of a plot."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec
from markupsafe import Markup, escape

# Positions of figures on the page, and the round figures at the ticks of an axis.


_STEPS = (1, 2, 2.5, 5, 10)  # × a power of ten: steps that are easy to count in


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """A linear map from ``low`` … ``high`` of a figure to ``start`` … ``end`` of the page."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Return about ``most`` round figures within the scale."""
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * i for i in range(first, last + 1)]


def coordinate(value: float) -> str:
    """Write a coordinate with a precision of a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


# SVG elements whose text and attributes are escaped, and the frame of a plot.
#
# The SVG is written without a library: hundreds of plots take less than a second and a few kB each,
# and they use the page's own light or dark colours.


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
