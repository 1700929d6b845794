"""Sessions that are suspect in a row: how many of them prove a regression."""

from __future__ import annotations

import math

SUSPECT_LEVEL = 0.01
# The share of a verdict's false-alarm rate that is spent on runs of suspect sessions. Each length
# of a run has half of it, because their alarms overlap. A smaller share costs part of a session.
# The rest is for the test of each session by itself.
_SHARE = 0.25
# The probability that a session was suspect before one that is, if nothing changed. It is not
# SUSPECT_LEVEL: sessions share their reference, whose error gives their differences a correlation
# of 0.2, and may be correlated themselves. It covers a correlation of the differences of 0.4.
REPEATED = 0.1


def sessions_to_confirm(chance: float, alpha: float) -> int:
    """Return how many suspect sessions in a row are a regression.

    ``chance`` is the probability of the newest one if nothing changed. A quarter of the verdict's
    false-alarm rate ``alpha`` is spent on such runs: ``chance × 0.1^(n − 1) ≤ alpha ÷ 8``. At least
    two.
    """
    if chance == 0:
        return 2
    further = math.log(_SHARE / 2 * alpha / chance) / math.log(REPEATED)
    return max(2, 1 + math.ceil(further - 1e-9))


def level_of_one_session(alpha: float) -> float:
    """Return the part of a verdict's false-alarm rate that is for the session by itself."""
    return (1 - _SHARE) * alpha
