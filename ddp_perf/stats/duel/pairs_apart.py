"""Pairs that lie apart from the others, because one of their launches was in a slow mode."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import special

from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import upper_t

_LEVEL = 0.001  # of the test: normal pairs lose one in a look of a thousand
_MOST_SHARE = 1 / 3  # of the pairs may lie apart

# Two independent launches of one law differ by a given amount, other than none, at most once in
# four: the chances of x and x + d next to each other, summed, are at most ½ · ½.
_SAME_DIFFERENCE = 1 / 4


@functools.lru_cache(maxsize=1024)  # a case's looks are the same for each of its metrics
def most_apart(pairs: int, level: float) -> int | None:
    """Return how many pairs may be set aside without making a difference out of chance.

    If each launch is in one of two modes, some pairs have a difference of one gap. The rest must
    be so many that they are not those pairs, at this level. None: not even all of them are enough.
    """
    most = None
    for apart in range(int(_MOST_SHARE * pairs) + 1):
        if special.bdtrc(pairs - apart - 1, pairs, _SAME_DIFFERENCE) <= level:
            most = apart
    return most


def without_apart(logs: Floats, most: int) -> Floats:
    """Return the logs without those that lie apart: the generalised ESD test of many outliers.

    Up to ``most`` are taken away one by one, the farthest from the mean first, and all up to the
    last one that is significant stay away (Rosner, Technometrics 25, 1983): so two that hide each
    other are found.
    """
    rest, kept = logs, logs
    for _ in range(min(most, len(logs) - 3)):
        if rest.min() == rest.max():
            break
        distances = np.abs(rest - rest.mean())
        farthest = int(np.argmax(distances))
        significant = distances[farthest] > _critical(len(rest)) * rest.std(ddof=1)
        rest = np.delete(rest, farthest)
        if significant:
            kept = rest
    return kept


@functools.lru_cache(maxsize=1024)
def _critical(count: int) -> float:
    """Return the critical distance of the farthest of so many normal values, in their sd."""
    t = upper_t(count - 2, _LEVEL / (2 * count))
    return (count - 1) * t / math.sqrt((count - 2 + t * t) * count)
