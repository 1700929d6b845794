"""Robust spread: a standard deviation that a few values far off do not widen."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# A string, so that a module that needs no array can import this one without numpy.
Floats: TypeAlias = "npt.NDArray[np.float64]"

# Standard deviation ÷ median absolute deviation (MAD) of a normal law: 1 ÷ Φ⁻¹(3/4).
_SD_PER_MAD = 1.4826
# The precision of a MAD, as a share of that of an sd (Rousseeuw & Croux, JASA 88, 1993).
_MAD_EFFICIENCY = 0.37


def robust_sd(values: Sequence[float]) -> float:
    """Return 1.4826 × the median absolute deviation: the sd of normal values, robustly.

    Raises StatisticsError if there is no value.
    """
    centre = statistics.median(values)
    return sd_of_deviations(abs(value - centre) for value in values)


def sd_of_deviations(deviations: Iterable[float]) -> float:
    """Return the sd of normal values from the absolute deviations from their centre."""
    return _SD_PER_MAD * statistics.median(deviations)


def robust_df(values: int) -> float:
    """Return the degrees of freedom of a variance from the median absolute deviation."""
    return max(1.0, _MAD_EFFICIENCY * values)
