"""Sessions that are suspect in a row: how many of them prove a regression."""

from __future__ import annotations

import math

SUSPECT_LEVEL = 0.01
# The probability that a session is suspect by chance after one that was. It is not SUSPECT_LEVEL:
# sessions share their reference, whose error gives their differences a correlation of 0.2, and
# may be correlated themselves. It covers a correlation of the differences of 0.4.
REPEATED = 0.1


def sessions_to_confirm(chance: float, alpha: float) -> int:
    """Return how many suspect sessions in a row are a regression.

    ``chance`` is the probability of one such session by chance. Half of the verdict's false-alarm
    rate ``alpha`` is spent on such runs: ``chance × 0.1^(n − 1) ≤ alpha ÷ 2``. At least two.
    """
    return max(2, 1 + math.ceil(math.log(alpha / 2 / chance) / math.log(REPEATED) - 1e-9))
