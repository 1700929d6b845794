"""A sequential test: the levels of its looks, and how many samples decide.

Each judge estimates a difference in its own way, from sessions, launches or pairs, and has its own
margins. The level of a look, and the number of samples that decide, are computed here for all.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from ddp_perf.stats.robust import Floats

# One false-alarm rate, divided over the looks.


_REACH = 8.0  # integrate down to −8 sd; the probability below that is less than 1e-15
_GRID = 401
_NEAREST = 0.99  # highest share of the next look's information; a lower share is the safe side


def planned_level(
    error: float, looks: Sequence[int], samples: int, information: Sequence[float] = ()
) -> float:
    """Return the level of the first look that is planned with at least so many ``samples``.

    ``looks`` are numbers of samples, rising; with fewer than two of them it is the whole ``error``.
    The ``information`` at each look is in proportion to its samples by default.
    """
    if len(looks) < 2:
        return error
    look = min(bisect.bisect_left(looks, samples), len(looks) - 1)
    return look_levels(error, information or looks)[look]


@functools.lru_cache(maxsize=1024)  # cases and metrics have the same plan
def level_at(error: float, looks: tuple[int, ...], samples: int) -> float:
    """Return the level of a look, planned or not: the error is spent by the share of samples.

    Lan & DeMets (Biometrika 70, 1983) allow a look that was not planned, if the figures did not
    cause it. What is then left for later looks is not needed: there are none.
    """
    before = [look for look in looks if look < samples]
    taken = (*before, samples, looks[-1]) if samples < looks[-1] else looks
    return look_levels(error, taken)[min(len(before), len(taken) - 1)]


def look_levels(alpha: float, information: Sequence[float]) -> tuple[float, ...]:
    """Return the level of each look at a case that takes more launches while it is undecided.

    ``information`` is the inverse of the error's variance at each planned look, in any unit, and
    never falls. At these levels all looks together raise a false alarm at rate ``alpha``. They are
    group-sequential bounds with the alpha spending ``α ln(1 + (e − 1) t)`` at the share t of the
    last look's information (Lan & DeMets, Biometrika 70, 1983; its bounds are nearly those of
    Pocock, Biometrika 64, 1977). A case that stops early spends less.

    Raises ValueError if the information is not positive and finite, or falls.
    """
    shares = np.asarray(information, dtype=float)
    falls = (np.diff(shares) < 0).any()
    if falls or not shares.size or not (np.isfinite(shares) & (shares > 0)).all():
        raise ValueError(f"information must rise from look to look, not {list(information)!r}")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha must lie between 0 and 0.5, not {alpha!r}")
    for look in reversed(range(len(shares) - 1)):  # the grid below cannot separate nearer ones
        shares[look] = min(shares[look], _NEAREST * shares[look + 1])
    return _look_levels(alpha, tuple((shares / shares[-1]).tolist()))


@functools.lru_cache(maxsize=1024)  # a case's looks are the same for hundreds of calls
def _look_levels(alpha: float, shares: tuple[float, ...]) -> tuple[float, ...]:
    if len(shares) == 1:
        return (alpha,)
    spent = alpha * np.log1p((math.e - 1) * np.asarray(shares))
    levels = []
    # The score B(t) is a Brownian motion: `points` and `weights` are its law below all bounds
    # so far (Armitage, McPherson & Rowe, JRSS A 132, 1969; Jennison & Turnbull 2000, ch. 19).
    points, weights = np.zeros(1), np.ones(1)
    for share, step, error in zip(
        shares, np.diff([0.0, *shares]), np.diff([0.0, *spent]), strict=True
    ):
        bound = _bound(points, weights, math.sqrt(step), float(error))
        levels.append(float(special.ndtr(-bound / math.sqrt(share))))
        points, weights = _below(points, weights, math.sqrt(step), bound)
    return tuple(levels)


def _bound(points: Floats, weights: Floats, sd: float, error: float) -> float:
    """Find the score that the next look exceeds with probability ``error``, by bisection."""
    low, high = float(points.min()) - _REACH * sd, float(points.max()) + 40.0 * sd
    for _ in range(80):
        middle = (low + high) / 2
        if float(weights @ special.ndtr((points - middle) / sd)) > error:
            low = middle
        else:
            high = middle
    return high


def _below(points: Floats, weights: Floats, sd: float, bound: float) -> tuple[Floats, Floats]:
    """Return the law of the next score below the bound, as points and weights of Simpson's rule."""
    grid = np.linspace(float(points.min()) - _REACH * sd, bound, _GRID)
    simpson = np.full(_GRID, 2.0)
    simpson[1::2], simpson[0], simpson[-1] = 4.0, 1.0, 1.0
    simpson *= (grid[1] - grid[0]) / 3
    density = np.exp(-0.5 * np.square((grid[:, None] - points) / sd)) @ weights
    return grid, simpson * density / (sd * math.sqrt(2 * math.pi))


# The number of samples that decide.


LIKELY = 0.9
MOST = 100  # samples or sessions that are considered


def fewest(counts: range, decides: Callable[[int], bool]) -> int | None:
    """Return the smallest count that decides, by bisection: a larger one never decides less."""
    found = bisect.bisect_left(counts, True, key=decides)
    return counts[found] if found < len(counts) else None


def samples_to_decide(
    decides: Callable[[int, float], bool], *, samples: int, variance: float
) -> tuple[int | None, int | None]:
    """Return how many more samples decide if the mean stays, and how many nine times in ten.

    ``decides`` has the number of all samples, and how far the mean moved the wrong way until then.
    The mean of k samples, each of this ``variance``, moves by N(0, variance × (1/k − 1/k')) on the
    way to k' samples. None: not even 100 more do.
    """
    counts = range(samples + 1, samples + MOST + 1)
    found = fewest(counts, lambda later: decides(later, 0.0))
    if found is None:
        return None, None

    def likely(later: int) -> bool:
        sd = math.sqrt(variance * (1 / samples - 1 / later))
        return decides(later, float(special.ndtri(LIKELY)) * sd)

    surely = next(filter(likely, counts[found - counts[0] :]), None)
    return found - samples, None if surely is None else surely - samples
