"""The terms of each case's step, stacked."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from ddp_perf.core.decomposition import Decomposition
from ddp_perf.report.html.plots.scaling import row_name
from ddp_perf.report.html.scale import Scale
from ddp_perf.report.html.svg import Frame, picture, rect, text
from ddp_perf.report.terms import SHOWN, term_values

_WIDTH, _ROW, _TOP, _NAMES, _VALUES = 400.0, 20.0, 10.0, 150.0, 60.0
_LETTER = 6.4  # approximate width of a letter in pixels


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """One case: its terms and its timed step."""

    name: str
    step: Decomposition
    step_s: float

    def parts(self) -> dict[str, float]:
        """Return the seconds of each name in SHOWN, but not of a term below 0: it has no length."""
        values = term_values(self.step, self.step_s)
        return {name: value for name, value in values.items() if value is not None and value > 0}


def term_plot(stacks: Sequence[Stack]) -> Markup:
    """Draw a stack for each case. Each part has its figure in a tip, and its name where it fits."""
    bottom = _TOP + len(stacks) * _ROW
    most = max(sum(stack.parts().values()) for stack in stacks)
    frame = Frame(
        x=Scale(low=0, high=1e3 * most, start=_NAMES, end=_WIDTH - _VALUES),
        y=Scale(low=0, high=1, start=bottom, end=_TOP),
    )
    parts = [frame.bottom_axis([(t, f"{t:g}") for t in frame.x.ticks()], "ms a step")]
    for i, stack in enumerate(stacks):
        y, at = _TOP + i * _ROW, 0.0
        parts.append(row_name(y, stack.name))
        for name, value in stack.parts().items():
            left, width = frame.x(1e3 * at), frame.x(1e3 * (at + value)) - frame.x(1e3 * at)
            tip = f"{stack.name}: {name} {1e3 * value:.2f} ms"
            parts.append(rect(left, y + 2, width, _ROW - 5, f"c{SHOWN.index(name)} part", tip))
            if width > _LETTER * len(name):
                parts.append(text(left + width / 2, y + 13.5, name, "middle", "in"))
            at += value
        parts.append(
            text(_WIDTH - _VALUES + 8, y + 14, f"{1e3 * stack.step_s:.3g} ms", class_="value")
        )
    return picture(_WIDTH, bottom + 34, "Where the time of a step goes", parts)
