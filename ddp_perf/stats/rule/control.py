"""The slope of a case on the control: how far the control's movement explains the case's.

If the control were simply subtracted, its own noise would be added: on recorded gloo launches that
raised the sd of a session from 2.9 to 7.3 %. A slope fitted to eight sessions is itself noisy. So
the slope is shrunken: each slope of a grid from 0 to 1 is weighted by how well it explains the
sessions. Before any session, half of the weight is on 0 (the control is of no use), a quarter on 1
(another clock: everything moves alike) and a quarter in between.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import upper_t

_SLOPES = np.linspace(0.0, 1.0, 41)
_PRIOR = np.full(41, 0.25 / 39)
_PRIOR[0], _PRIOR[-1] = 0.5, 0.25
_BEYOND_LEVEL = 0.001


class ControlSlope(msgspec.Struct, frozen=True, kw_only=True):
    """The slope of a case on the control, from the baseline sessions."""

    mean: float
    variance: float
    scale: float  # of the residuals at the mean slope, to their expected sum of squares


class ControlMove(msgspec.Struct, frozen=True, kw_only=True):
    """The movement of the control in the current session, on the log scale."""

    shift: float  # against the control's reference sessions
    beyond: bool  # further than in any session before: how the case follows is unknown
    slope: float  # how far the case follows
    explained: float  # of the case's difference
    variance: float  # of what is explained


def fit_slope(levels: Floats, control: Floats) -> ControlSlope:
    """Fit the slope of the case's levels on the control's, both centred logs by baseline session.

    The weight of a slope b is ``RSS(b)^(−(n−1)/2)``: the likelihood of normal residuals with their
    variance integrated out under the prior 1/σ² (Box & Tiao 1973, section 2.8).
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
        scale=(float(weight @ squares) / left) ** 0.5 if left > floor else 1.0,
    )


def currents_move(
    slope: ControlSlope, moves: Floats, shift: float, *, levels: int, reference: int
) -> ControlMove:
    """Return what the control's ``shift`` in this session explains of the case.

    ``moves`` are the control's baseline sessions around the means of their ``levels``, and
    ``shift`` is this session against its mean over so many ``reference`` sessions. Small moves of a
    control are mostly its own noise, so the fitted slope is near 0. A shift beyond them (t test at
    0.1 %) is a movement of the machine, and the fitted slope does not show how the case follows it:
    the slope is then as uncertain as before any session.
    """
    df = len(moves) - levels
    beyond = False
    if df > 0:
        error = float(moves @ moves) / df * (1 + 1 / reference)
        beyond = abs(shift) > error**0.5 * upper_t(df, _BEYOND_LEVEL)
    mean = float(_PRIOR @ _SLOPES) if beyond else slope.mean
    variance = float(_PRIOR @ np.square(_SLOPES - mean)) if beyond else slope.variance
    return ControlMove(
        shift=shift,
        beyond=beyond,
        slope=mean,
        explained=mean * shift,
        variance=variance * shift**2,
    )
