"""The share of trials that were found, with its exact interval."""

from __future__ import annotations

import msgspec
from scipy import special

CONFIDENCE = 0.95


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The share of trials that were found, with an interval of the true rate."""

    found: int
    trials: int
    interval: tuple[float, float]  # 95 %, two-sided; 0 to 1 without a trial

    @property
    def value(self) -> float | None:
        return self.found / self.trials if self.trials else None

    def chance(self, rate: float) -> float:
        """Return the probability of at least this number found, if the true rate is ``rate``."""
        return float(special.bdtrc(self.found - 1, self.trials, rate)) if self.found else 1.0


def share_found(found: int, trials: int) -> Share:
    """Return the share with its exact interval (Clopper & Pearson, Biometrika 26, 1934).

    Raises ValueError if ``found`` is negative or above ``trials``.
    """
    if not 0 <= found <= trials:
        raise ValueError(f"found {found} of {trials}")
    tail = (1 - CONFIDENCE) / 2
    low = special.betaincinv(found, trials - found + 1, tail) if found else 0.0
    high = special.betaincinv(found + 1, trials - found, 1 - tail) if found < trials else 1.0
    return Share(found=found, trials=trials, interval=(float(low), float(high)))
