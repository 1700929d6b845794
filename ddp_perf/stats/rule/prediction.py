"""Find what would decide a comparison: further launches of this session, or sessions."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable

import msgspec
from scipy import special

from ddp_perf.core.metric_history import REFERENCE_SESSIONS
from ddp_perf.stats.rule.comparison import Comparison, SignificanceLevels
from ddp_perf.stats.rule.variance_components import VarianceComponents

LIKELY = 0.9
MOST = 100  # launches or sessions that are considered


def launches_to_decide(
    errors: VarianceComponents, now: Comparison, levels: SignificanceLevels
) -> int | None:
    """Return how many more launches of this session would decide a comparison.

    The ratio is assumed to stay as it is. None: no number of launches would, because sessions
    are missing.
    """
    if errors.spread.assumed_sd is not None:
        return None
    return _fewest(lambda more: _launches_decide(errors, now, levels, more))


def launches_that_likely_decide(
    errors: VarianceComponents, now: Comparison, levels: SignificanceLevels, *, least: int
) -> int | None:
    """Return how many more launches decide a comparison nine times in ten, ``least`` or more.

    The mean of k launches moves by N(0, σ²_launch (1/k − 1/k')) on the way to k' launches. None:
    not even 100 more do.
    """
    for more in range(least, MOST + 1):
        fewer = 1 / errors.launches - 1 / (errors.launches + more)
        move = float(special.ndtri(LIKELY)) * math.sqrt(errors.launch_variance * fewer)
        if _launches_decide(errors, now, levels, more, move=move):
            return more
    return None


def _launches_decide(
    errors: VarianceComponents,
    now: Comparison,
    levels: SignificanceLevels,
    more: int,
    *,
    move: float = 0.0,
) -> bool:
    """Return whether so many more launches decide, if they move the ratio the wrong way so far."""
    launches = errors.launches + more
    variance = errors.variance(launches, errors.reference_sessions)
    then = msgspec.structs.replace(
        now,
        standard_error=math.sqrt(variance),
        degrees_of_freedom=errors.degrees_of_freedom_of(launches),
    )
    slower, faster = (
        msgspec.structs.replace(then, difference=now.difference + by) for by in (move, -move)
    )
    return slower.passes(levels.passing) or faster.slower(levels.regression)


def sessions_to_decide(
    errors: VarianceComponents, now: Comparison, levels: SignificanceLevels
) -> int | None:
    """Return how many more baseline sessions would decide a comparison that launches cannot.

    The ratio and the spread are assumed to stay as they are. They do not: the number shows whether
    sessions may decide it, and no more (`benchmarks/predictions.py`). None: not even 100 more
    would, or the spread of sessions is assumed, which shows nothing.
    """
    if errors.spread.assumed_sd is not None:
        return None

    def decided(more: int) -> bool:
        reference = max(
            errors.reference_sessions, min(errors.reference_sessions + more, REFERENCE_SESSIONS)
        )
        then = msgspec.structs.replace(
            now,
            standard_error=math.sqrt(errors.variance(errors.launches, reference)),
            degrees_of_freedom=now.degrees_of_freedom + more,
        )
        return then.passes(levels.passing) or then.slower(levels.regression)

    return _fewest(decided)


def _fewest(decided: Callable[[int], bool]) -> int | None:
    """Find the smallest number by bisection: a larger one never decides less."""
    counts = range(1, MOST + 1)
    found = bisect.bisect_left(counts, True, key=decided)
    return counts[found] if found < len(counts) else None
