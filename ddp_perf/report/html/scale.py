"""Positions of figures on the page, and the round figures at the ticks of an axis."""

from __future__ import annotations

import math

import msgspec

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
