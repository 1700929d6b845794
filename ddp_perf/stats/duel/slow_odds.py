"""The evidence of pairs of launches that a commit is slow: for a noisy binary search."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ddp_perf.stats.duel.pair_plan import RESOLUTION


def slow_log_odds(logs: Sequence[float], bad: Sequence[float]) -> float:
    """Return ln(P(logs | the commit is as slow as bad) ÷ P(logs | it is as fast as good)).

    ``logs`` are the logs of commit ÷ good of each pair, ``bad`` those of bad ÷ good, at least two.
    The variance and the slow-down are known from ``bad`` alone, with the prior 1 ÷ σ²: so the
    laws of ``logs`` are multivariate laws of Student (Gelman et al., Bayesian Data Analysis,
    2013, §3.2), whose evidence is bounded where that of normal laws is not.

    Raises ValueError if a log is not finite, or there are fewer than two of bad.
    """
    if not all(map(math.isfinite, (*logs, *bad))):
        raise ValueError("the log ratios of pairs must be finite")
    if len(bad) < 2:
        raise ValueError(f"the slow-down takes at least two pairs of bad, not {len(bad)}")
    count, known = len(logs), len(bad)
    if not count:
        return 0.0
    mean, slow_down = statistics.fmean(logs), statistics.fmean(bad)
    own = math.fsum((log - mean) ** 2 for log in logs)
    spread = math.fsum((log - slow_down) ** 2 for log in bad) + known * RESOLUTION**2
    as_good = spread + own + count * mean**2
    as_bad = spread + own + count * known / (count + known) * (mean - slow_down) ** 2
    freedom = known - 1 + count
    return (freedom * math.log(as_good / as_bad) - math.log1p(count / known)) / 2
