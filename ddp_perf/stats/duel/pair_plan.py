"""The plan of a paired test: how often it may be wrong, and after how many pairs one looks."""

from __future__ import annotations

import functools
import math

import msgspec

from ddp_perf.stats.rule.error_rate import look_levels

EQUIVALENCE_ERROR = 0.05  # of EQUIVALENT, over all looks, if the true ratio is at the tolerance

# With six pairs Student's t holds its level on differences with heavy tails. Each look has half as
# many pairs more: finer ones take hardly fewer pairs, and find less, since each look costs alpha.
_FIRST, _GROWTH = 6, 1.5


class PairedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a paired test. It must not depend on what the pairs show.

    ``alpha`` is the rate of SLOWER, and as much of FASTER, over all looks, if nothing differs.
    The sides are equivalent if the ratio lies between 1 ÷ (1 + ``tolerance``) and 1 + tolerance:
    the answer is the same whichever of them is called A. ``looks`` are the numbers of pairs after
    which one looks: they rise.

    Raises ValueError if one of them makes no sense.
    """

    alpha: float
    tolerance: float
    looks: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha must lie between 0 and 0.5, not {self.alpha!r}")
        if not 0 < self.tolerance < math.inf:
            raise ValueError(f"the tolerance must be positive and finite, not {self.tolerance!r}")
        if list(self.looks) != sorted({*self.looks} - {0}) or not self.looks or self.looks[0] < 0:
            raise ValueError(f"looks must be rising numbers of pairs, not {self.looks!r}")

    @property
    def margin(self) -> float:
        """The tolerance on the log scale."""
        return math.log1p(self.tolerance)

    def difference_level(self, pairs: int) -> float:
        """Return the one-sided level at which SLOWER, or FASTER, is judged after these pairs."""
        return _level_of(self.alpha, self.looks, pairs)

    def equivalence_level(self, pairs: int) -> float:
        """Return the level of each of the two one-sided tests of EQUIVALENT after these pairs."""
        return _level_of(EQUIVALENCE_ERROR, self.looks, pairs)


@functools.lru_cache(maxsize=1024)  # cases and metrics have the same plan
def _level_of(error: float, looks: tuple[int, ...], pairs: int) -> float:
    """Return the level of a look, planned or not: the error is spent by the share of pairs.

    Lan & DeMets (Biometrika 70, 1983) allow a look that was not planned, if the figures did not
    cause it. What is then left for later looks is not needed: there are none.
    """
    before = [look for look in looks if look < pairs]
    taken = (*before, pairs, looks[-1]) if pairs < looks[-1] else looks
    return look_levels(error, taken)[min(len(before), len(taken) - 1)]


def plan_pair_looks(most: int) -> tuple[int, ...]:
    """Return the numbers of pairs at which one looks, if there is room for ``most`` pairs.

    Raises ValueError if there is no room for a pair.
    """
    if most < 1:
        raise ValueError(f"a duel needs room for at least one pair, not {most!r}")
    looks = [min(_FIRST, most)]
    while (following := math.ceil(_GROWTH * looks[-1])) <= most / _GROWTH:
        looks.append(following)
    return (*looks, most) if most > looks[-1] else tuple(looks)
