"""The power of pairs of launches: the least slow-down that is found, and how many it takes."""

from __future__ import annotations

import bisect
import math

from scipy import special

from ddp_perf.stats.duel.pair_plan import PairedPlan
from ddp_perf.stats.rule.comparison import upper_t

_MISSED = 0.1  # the minimum detectable slow-down is found nine times in ten
_FURTHEST = 1000  # more pairs than that are no advice


def minimum_detectable(spread: float, plan: PairedPlan) -> float | None:
    """Return the slow-down, as a fraction, that is found SLOWER nine times in ten.

    ``spread`` is the sd of the log ratio of a pair. The power of the last look alone is a bound
    of that of all looks, and nearly reaches it. A slow-down within the tolerance is EQUIVALENT
    where the spread is small, so that the result is never below the tolerance. None: a plan of
    fewer than two pairs.

    Raises ValueError if the spread is negative or not finite.
    """
    if not 0 <= spread < math.inf:
        raise ValueError(f"a spread must be finite and not negative, not {spread!r}")
    pairs = plan.looks[-1]
    if pairs < 2:
        return None
    critical = upper_t(pairs - 1, plan.difference_level(pairs))
    shift = float(special.nctdtrinc(pairs - 1, _MISSED, critical)) * spread / math.sqrt(pairs)
    return math.expm1(max(plan.margin, min(shift, 300.0)))


def pairs_to_decide(mean: float, spread: float, pairs: int, plan: PairedPlan) -> int | None:
    """Return how many further pairs would decide, if the mean and the spread stay the same.

    Within the plan it is up to its next look that decides. None: no number of up to a thousand.
    """
    last = plan.looks[-1]
    difference, equivalence = plan.difference_level(last), plan.equivalence_level(last)

    def decides(count: int) -> bool:
        error = spread / math.sqrt(count)
        differs = abs(mean) > upper_t(count - 1, difference) * error
        return differs or abs(mean) + upper_t(count - 1, equivalence) * error <= plan.margin

    counts = range(max(2, pairs + 1), pairs + _FURTHEST + 1)
    found = bisect.bisect_left(counts, True, key=decides)
    if found == len(counts):
        return None
    return next((look for look in plan.looks if look >= counts[found]), counts[found]) - pairs
