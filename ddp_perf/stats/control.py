"""How far the control's movement explains the case's: a slope learnt from the nights.

Subtracting the control blindly adds its own noise: on recorded gloo launches that raised the
sd of a night from 2.9 to 7.3 %. A slope fitted to eight nights is itself noise. So the slope
is shrunken. Each of a grid of slopes from 0 to 1 is weighted by how well it explains the
nights; before they speak, half of the weight is on 0 (the control is of no use), a quarter on
1 (another clock: everything moves alike) and a quarter between.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ddp_perf.stats.levels import Floats

_SLOPES = np.linspace(0.0, 1.0, 41)
_PRIOR = np.full(41, 0.25 / 39)
_PRIOR[0], _PRIOR[-1] = 0.5, 0.25


class ControlSlope(msgspec.Struct, frozen=True, kw_only=True):
    """The posterior of the slope, and what it leaves of the nights' spread."""

    mean: float
    variance: float
    residual: Floats  # of the nights at the mean slope, drawn out to the expected squares


def fit_slope(levels: Floats, control: Floats) -> ControlSlope:
    """``levels`` and ``control``: logs by baseline session, each centred.

    The weight of a slope b is ``RSS(b)^(−(n−1)/2)``: the likelihood of normal residuals with
    their variance integrated out under the prior 1/σ² (Box & Tiao 1973, section 2.8).
    """
    residual = levels[:, None] - control[:, None] * _SLOPES
    squares = np.square(residual).sum(axis=0)
    floor = max(float(squares.max()) * 1e-12, np.finfo(float).tiny)
    log_weight = np.log(_PRIOR) - 0.5 * (len(levels) - 1) * np.log(np.maximum(squares, floor))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = float(weight @ _SLOPES)
    residual = levels - mean * control
    left = float(residual @ residual)
    return ControlSlope(
        mean=mean,
        variance=float(weight @ np.square(_SLOPES - mean)),
        residual=residual * (float(weight @ squares) / left) ** 0.5 if left > floor else residual,
    )
