"""How many launches fell into the slow mode, and whether that many is news."""

from __future__ import annotations

import math

import msgspec

from ddp_perf.stats.levels import Levels


class SlowShare(msgspec.Struct, frozen=True, kw_only=True):
    """Launches in the slow mode, of the current session and of the baseline."""

    current: int
    current_launches: int
    baseline: int
    baseline_launches: int

    @property
    def any_slow(self) -> bool:
        return self.current + self.baseline > 0

    @property
    def p_value(self) -> float:
        """Fisher's exact test, one-sided: as many slow launches or more, if nothing changed."""
        slow = self.current + self.baseline
        launches = self.current_launches + self.baseline_launches
        ways = sum(
            math.comb(slow, hits) * math.comb(launches - slow, self.current_launches - hits)
            for hits in range(self.current, min(slow, self.current_launches) + 1)
        )
        return ways / math.comb(launches, self.current_launches)

    @property
    def chance_of_all(self) -> float:
        """How probable it was that every launch of a session like this one is slow.

        Beta-binomial with the prior Beta(1/2, 1/2) on the share and the baseline's counts.
        """
        return math.prod(
            (self.baseline + 0.5 + drawn) / (self.baseline_launches + 1 + drawn)
            for drawn in range(self.current_launches)
        )


def slow_share(levels: Levels, baseline_mask: list[bool]) -> SlowShare:
    """Counts; a baseline session outside ``baseline_mask`` was slow as a whole."""
    launches = levels.fast_launches + levels.slow_launches
    slow = [
        int(slow if kept else every)
        for slow, every, kept in zip(
            levels.slow_launches[:-1], launches[:-1], baseline_mask, strict=True
        )
    ]
    return SlowShare(
        current=int(levels.slow_launches[-1]),
        current_launches=int(launches[-1]),
        baseline=sum(slow),
        baseline_launches=int(launches[:-1].sum()),
    )
