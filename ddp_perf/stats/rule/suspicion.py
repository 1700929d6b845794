"""Sessions that are suspect in a row: how many of them prove a regression."""

from __future__ import annotations

import math

SUSPECT_LEVEL = 0.01
# The share of a verdict's false-alarm rate that is spent on runs of suspect sessions. A smaller one
# costs them part of a session; the rest is for the test of each session by itself.
_SHARE = 0.25
# The probability that a session is suspect by chance after one that was. It is not SUSPECT_LEVEL:
# sessions share their reference, whose error gives their differences a correlation of 0.2, and
# may be correlated themselves. It covers a correlation of the differences of 0.4.
REPEATED = 0.1


def sessions_to_confirm(chance: float, alpha: float) -> int:
    """Return how many suspect sessions in a row are a regression.

    ``chance`` is the probability of one such session by chance. A quarter of the verdict's
    false-alarm rate ``alpha`` is spent on such runs: ``chance × 0.1^(n − 1) ≤ alpha ÷ 4``. At least
    two.
    """
    further = math.log(_SHARE * alpha / chance) / math.log(REPEATED)
    return max(2, 1 + math.ceil(further - 1e-9))


def level_of_one_session(alpha: float) -> float:
    """Return the part of a verdict's false-alarm rate that is for the session by itself."""
    return (1 - _SHARE) * alpha
