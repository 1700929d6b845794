"""What a measured rate shows of the true one, and what a check of a bound can find."""

from __future__ import annotations

import msgspec
from scipy import optimize, stats

from ddp_perf.stats.interval import share_found


def with_interval(events: int, trials: int, digits: int = 1) -> str:
    """Return a rate in per cent with its 95 % interval (Clopper & Pearson)."""
    low, high = share_found(events, trials).interval
    rate, least, most = (f"{100 * share:.{digits}f}" for share in (events / trials, low, high))
    return f"{rate} ({least}–{most})"


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A rate that a check calls exceeded only if chance explains it less than once in 100."""

    rate: float

    def exceeded(self, events: int, trials: int) -> bool:
        return bool(stats.binom.sf(events - 1, trials, self.rate) < 0.01)

    def text(self, trials: int) -> str:
        """Return from how many events on the check fails, and which rate it would find."""
        first = next(n for n in range(trials + 1) if self.exceeded(n, trials))
        found = optimize.brentq(
            lambda rate: stats.binom.sf(first - 1, trials, rate) - 0.9, self.rate, 1.0
        )
        return (
            f"the check fails from {first} of {trials} on ({first / trials:.2%}); it finds a true"
            f" rate of {found:.2%} nine times in ten"
        )
