"""The probability that the best of several settings is the best, from paired launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from ddp_perf.stats.robust import Floats

_DRAWS = 10_000  # a probability of one half is then known to 0.5 %
_SEED = 1
_RESOLUTION = 1e-4  # of a log: figures that are equal do not show a smaller spread
# The sd of the settings, on the log scale: 0.1 to 30 %, each order of size as likely. With a flat
# prior instead, the best of eight seems sure where it is picked by its luck: of those stated at
# 94 %, 66 % were the best (benchmarks/duel_choices.py).
_SETTING_SDS = np.geomspace(0.001, 0.3, 24)
_QUANTILES = (np.arange(64) + 0.5) / 64  # of the law of the noise


def best_chances(blocks: Sequence[Sequence[float | None]]) -> tuple[float, ...]:
    """Return for each setting the probability that its metric is the lowest one; they sum to 1.

    ``blocks`` are rows of the log of the metric of each setting, measured one after the other;
    None: this setting was dropped before. The model is a two-way layout, block + setting + noise of
    one spread, in which the settings are a sample of a normal law whose sd is estimated with them
    (Gelman et al., Bayesian Data Analysis, 2013, §5.4). Draws of the posterior have a fixed seed.
    Without two settings in two blocks there is no spread, and each setting is as likely.

    Raises ValueError if a log is not finite, rows differ in length, or a setting has no figure.
    """
    settings = {len(row) for row in blocks}
    if len(settings) != 1 or 0 in settings:
        raise ValueError("each block must have a place for each setting")
    table = np.array([[math.nan if log is None else log for log in row] for row in blocks])
    measured = np.isfinite(table)
    given = np.array([[log is not None for log in row] for row in blocks])
    if (measured != given).any() or not measured.any(axis=0).all():
        raise ValueError("each setting needs a figure, and the logs must be finite")
    fit = _fit(table, measured)
    count = len(blocks[0])
    if fit is None:
        return (1 / count,) * count
    counts = np.bincount(_lowest(fit), minlength=count)
    return tuple(float(share) for share in counts / _DRAWS)


def _lowest(fit: _Fit) -> npt.NDArray[np.int64]:
    """Draw which setting is the lowest one."""
    count, random = len(fit.levels), np.random.default_rng(_SEED)
    # Independent contrasts: the settings without their common level, rotated.
    basis = np.linalg.qr(np.hstack([np.ones((count, 1)), np.eye(count)[:, 1:]]))[0][:, 1:]
    shares, rotation = np.linalg.eigh(basis.T @ fit.covariance @ basis)
    contrasts = basis @ rotation
    found = contrasts.T @ fit.levels
    # The law of the noise and the sd of the settings, on a grid of both.
    noises = fit.noise / special.chdtri(fit.freedom, _QUANTILES)[:, None, None] * shares
    total = noises + np.square(_SETTING_SDS)[:, None]
    logs = -0.5 * (np.log(total) + np.square(found) / total).sum(axis=2)
    weights = np.exp(logs - logs.max()).ravel()
    cells = random.choice(weights.size, size=_DRAWS, p=weights / weights.sum())
    noise = noises[cells // len(_SETTING_SDS), 0]
    prior = np.square(_SETTING_SDS[cells % len(_SETTING_SDS)])[:, None]
    kept = prior / (prior + noise)
    drawn = kept * found + np.sqrt(kept * noise) * random.standard_normal(noise.shape)
    lowest: npt.NDArray[np.int64] = np.argmin(drawn @ contrasts.T, axis=1)
    return lowest


class _Fit(NamedTuple):
    levels: Floats  # of the settings, up to a constant
    covariance: Floats  # of the levels, in units of the noise's variance
    noise: float  # sum of squares
    freedom: int


def _fit(table: Floats, measured: npt.NDArray[np.bool_]) -> _Fit | None:
    """Fit block + setting by least squares; None if the settings or the noise cannot be told."""
    rows, columns = np.nonzero(measured)
    blocks, settings = np.eye(table.shape[0])[rows], np.eye(table.shape[1])[columns]
    design = np.hstack([settings, blocks[:, 1:]])  # the first block is the constant of the settings
    freedom = len(rows) - design.shape[1]
    if freedom < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ design.T @ table[measured]
    noise = float(np.square(table[measured] - design @ fitted).sum()) + freedom * _RESOLUTION**2
    count = table.shape[1]
    return _Fit(fitted[:count], inverse[:count, :count], noise, freedom)
