"""The change of each term of a step between two sides that were launched in pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ddp_perf.core.decomposition import TERMS, Decomposition
from ddp_perf.core.explanation import Delta
from ddp_perf.stats.rule.comparison import upper_t

_LEVEL = 0.05 / len(TERMS)  # significance level of each term; 5 % for all of them
_LEAST = 3  # pairs: fewer have hardly a spread


def paired_terms(pairs: Sequence[tuple[Decomposition, Decomposition]]) -> tuple[Delta, ...]:
    """Return the mean change of each term from the first to the second of the pairs.

    What slows the machine for minutes cancels within a pair, so the uncertainty is that of the mean
    difference (Student's t). Returns nothing with fewer than three pairs.
    """
    if len(pairs) < _LEAST:
        return ()
    return tuple(
        _change(term, [(a.terms[term], b.terms[term]) for a, b in pairs]) for term in TERMS
    )


def _change(term: str, values: Sequence[tuple[float, float]]) -> Delta:
    differences = [after - before for before, after in values]
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return Delta(
        name=term,
        before=statistics.fmean(before for before, _ in values),
        after=statistics.fmean(after for _, after in values),
        uncertainty=upper_t(len(values) - 1, _LEVEL / 2) * error,
    )
