"""The place of a step: the probability of each one on a line of commits, given noisy launches.

The search is a probabilistic bisection (Horstein, IEEE Trans. Inform. Theory 9, 1963; Burnashev &
Zigangirov, Problems Inform. Transmission 10, 1974; Waeber, Frazier & Henderson, SIAM J. Control
Optim. 51, 2013): it keeps a posterior over the places, and next asks the commit about which that
is the least certain. With one step this is its median.

A hypothesis gives each commit a level z: 0 (as good), 1 (as bad), or between or beyond them if
there are two steps. The logs of launches are y = mood of the block + δ z + noise. The slow-down δ,
the moods and the variance of the noise are unknown; flat priors integrate to a law of Student ::

    P(y | z) ∝ (z'Mz)^(−1/2) · (y'My − (z'My)² ÷ z'Mz)^(−(n − blocks − 1) ÷ 2)

where M subtracts the mean of each block. So every pair, whichever commits it has, tells about δ and
about the noise, and what the machine does to a whole block cancels.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import special

from ddp_perf.stats.robust import Floats

TWO_STEPS = 0.1  # prior probability; benchmarks/commit_search.py has what it costs and finds
# The level between the two steps. Below 0: first faster, then slower by more than all; above 1: a
# part of the slow-down was taken back.
_BETWEEN = (-0.5, 0.25, 0.5, 0.75, 1.5)
Integers: TypeAlias = npt.NDArray[np.int64]
_MOST_MARKS = 64  # two steps of more marks have too many places


class Reading(NamedTuple):
    """The log of a lower-is-better figure of a launch. Those of a block ran one after another."""

    block: int
    place: int
    log: float


class Suspects(msgspec.Struct, frozen=True, kw_only=True):
    """Adjacent commits, from place ``first`` to ``last``, one of which made the case slower."""

    first: int
    last: int


class Belief(msgspec.Struct, frozen=True, kw_only=True):
    """The posterior. A group is the commits after one mark up to the next one.

    Commits of a group cannot be distinguished: those before its mark cannot be launched, or are
    left out while the line is long. Innocent ones have no share of its probability.
    """

    marks: tuple[int, ...]  # places that can be asked, with those of good and bad
    innocent: Set[int] = frozenset()
    one: tuple[float, ...]  # probability of one step, in each group
    two: dict[tuple[int, int], float]  # of two steps, in these groups
    doubt: tuple[float, ...]  # variance of the level of each mark

    def group(self, number: int) -> Suspects:
        return Suspects(first=self.marks[number] + 1, last=self.marks[number + 1])

    def steps(self) -> float:
        """Return the probability of two steps."""
        return sum(self.two.values())

    def chances(self) -> list[float]:
        """Return for each commit after good the probability that it changed the level."""
        each = list(self.one)
        for pair, share in self.two.items():
            for group in pair:
                each[group] += share
        chances = [0.0] * self.marks[-1]
        for group, (low, high) in enumerate(itertools.pairwise(self.marks)):
            suspects = set(range(low + 1, high + 1)) - self.innocent
            for place in suspects:
                chances[place - 1] = each[group] / len(suspects)
        return chances

    def found(self, confidence: float) -> tuple[Suspects, ...]:
        """Return the group of the step, or of both steps, or () if none is that likely."""
        if max(self.one) >= confidence:
            return (self.group(self.one.index(max(self.one))),)
        if self.two and max(self.two.values()) >= confidence:
            first, second = max(self.two, key=self.two.__getitem__)
            return self.group(first), self.group(second)
        return ()

    def chance_of(self, suspects: Sequence[Suspects]) -> float:
        """Return the probability that exactly these groups have the steps."""
        groups = tuple(self.marks.index(each.last) - 1 for each in suspects)
        return self.one[groups[0]] if len(groups) == 1 else self.two[groups[0], groups[1]]

    def smallest(self, confidence: float) -> tuple[Suspects, float]:
        """Return the fewest adjacent commits that contain every step, with their probability."""
        total, sizes = self._within(), _sizes(self.marks, self.innocent)
        best = (sum(sizes), 0.0, 0, len(self.one))
        for low, high in itertools.combinations(range(len(self.marks)), 2):
            size = sum(sizes[low:high])
            if total[low, high] >= confidence:
                best = min(best, (size, -total[low, high], low, high))
        low, high = best[2:]
        low, high = (low, high) if best[1] else (0, len(self.one))
        return Suspects(first=self.marks[low] + 1, last=self.marks[high]), float(total[low, high])

    def _within(self) -> Floats:
        """Return [low, high]: the probability that all steps are in groups low … high − 1."""
        groups = len(self.one)
        inside = np.diag(np.asarray(self.one))
        for (first, second), share in self.two.items():
            inside[first, second] += share
        total = np.zeros((groups + 1, groups + 1))
        for low in range(groups):
            total[low, 1:] = np.cumsum(inside[low:].sum(axis=0))
        return total


def places_to_ask(length: int, innocent: Set[int] = frozenset()) -> tuple[int, ...]:
    """Return good, bad, and the suspects between them: bad stands for the last one."""
    suspects = [place for place in range(1, length + 1) if place not in innocent]
    return (0, *suspects[:-1], length)


def believe(
    length: int,
    untestable: Iterable[int],
    readings: Sequence[Reading],
    innocent: Set[int] = frozenset(),
) -> Belief:
    """Return the posterior for a line of ``length`` commits after good, not all ``innocent``.

    The readings must contain good and bad. If the line is long, the groups with the steps are
    divided as soon as they have nearly all probability.
    """
    skipped = set(untestable) - {0, length}
    possible = [place for place in places_to_ask(length, innocent) if place not in skipped]
    asked = {reading.place for reading in readings}
    marks = sorted({*_thinned(possible), *asked})
    while True:
        belief = _posterior(tuple(marks), readings, innocent)
        groups = belief.found(0.9)
        inside = [p for p in possible if any(each.first <= p < each.last for each in groups)]
        finer = sorted({*marks, *_thinned(inside)})
        if finer == marks:
            return belief
        marks = finer


def _thinned(places: Sequence[int]) -> list[int]:
    """Return at most about _MOST_MARKS of the places, with the first and the last one."""
    step = math.ceil(len(places) / _MOST_MARKS) or 1
    return [*places[::step], *places[-1:]]


def _posterior(marks: tuple[int, ...], readings: Sequence[Reading], innocent: Set[int]) -> Belief:
    levels, steps = _hypotheses(len(marks) - 1)
    index = {place: number for number, place in enumerate(marks)}
    _, blocks = np.unique([reading.block for reading in readings], return_inverse=True)
    places = np.asarray([index[reading.place] for reading in readings])
    design = np.zeros((len(readings), len(marks)))
    design[np.arange(len(readings)), places] = 1
    design, logs = (
        _centred(each, blocks) for each in (design, np.asarray([r.log for r in readings])[:, None])
    )
    asked = np.unique(places)
    inner = (design.T @ design)[np.ix_(asked, asked)]
    outer = (design.T @ logs)[asked, 0]
    seen = levels[:, asked]
    squares = np.einsum("hi,ij,hj->h", seen, inner, seen)
    rest = np.sum(logs**2) - (seen @ outer) ** 2 / squares
    freedom = len(readings) - (blocks.max() + 1) - 1
    fit = -0.5 * np.log(squares) - freedom / 2 * np.log(np.maximum(rest, 1e-12))
    with np.errstate(divide="ignore"):  # a group of innocent commits has a prior of 0
        prior = np.log(_prior(_sizes(marks, innocent), steps))
    shares = special.softmax(prior + fit)
    mean = shares @ levels
    two = np.zeros((len(marks) - 1,) * 2)
    np.add.at(two, (steps[len(two) :, 0], steps[len(two) :, 1]), shares[len(two) :])
    return Belief(
        marks=marks,
        innocent=innocent,
        one=tuple(shares[: len(two)].tolist()),
        two={pair: float(two[pair]) for pair in itertools.combinations(range(len(two)), 2)},
        doubt=tuple((shares @ (levels - mean) ** 2).tolist()),
    )


def _centred(rows: Floats, blocks: Integers) -> Floats:
    """Return the rows without the mean of their block."""
    sums = np.zeros((blocks.max() + 1, rows.shape[1]))
    np.add.at(sums, blocks, rows)
    return rows - (sums / np.bincount(blocks)[:, None])[blocks]


def _sizes(marks: Sequence[int], innocent: Set[int]) -> list[int]:
    """Return how many commits of each group may be to blame."""
    return [
        high - low - sum(low < place <= high for place in innocent)
        for low, high in itertools.pairwise(marks)
    ]


def _prior(sizes: Sequence[int], steps: Integers) -> Floats:
    """Return the prior of each hypothesis: suspects are alike, so a group has their number."""
    each = np.asarray(sizes, dtype=float)
    groups = len(each)
    two = each[steps[groups:, 0]] * each[steps[groups:, 1]]
    if not two.any():  # one group has all suspects
        return np.concatenate([each / each.sum(), two])
    return np.concatenate([(1 - TWO_STEPS) * each / each.sum(), TWO_STEPS * two / two.sum()])


@functools.lru_cache(maxsize=8)
def _hypotheses(groups: int) -> tuple[Floats, Integers]:
    """Return the level of each mark by each hypothesis, and the groups of its steps.

    The first ones have one step, in group 0, 1, 2 … The others have two.
    """
    after = (np.arange(groups + 1) > np.arange(groups)[:, None]).astype(float)  # [group, mark]
    pairs = np.asarray(list(itertools.combinations(range(groups), 2)), dtype=int).reshape(-1, 2)
    levels = [after] + [
        share * after[pairs[:, 0]] + (1 - share) * after[pairs[:, 1]] for share in _BETWEEN
    ]
    alone = np.repeat(np.arange(groups)[:, None], 2, axis=1)
    return np.vstack(levels), np.vstack([alone] + [pairs] * len(_BETWEEN))


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio of two commits, with its 95 % interval."""

    ratio: float
    interval: tuple[float, float]


def levels(readings: Sequence[Reading]) -> dict[int, Level]:
    """Return each commit that was launched ÷ good, from all blocks together.

    It is a regression on commits and blocks: a commit beside bad is compared with good through
    the pairs of good and bad. Empty: too few launches.
    """
    places = sorted({reading.place for reading in readings} - {0})
    columns = np.asarray([[reading.place == place for place in places] for reading in readings])
    return dict(zip(places, _ratios(columns, readings), strict=False))


def step_ratios(readings: Sequence[Reading], steps: Sequence[Suspects]) -> list[Level]:
    """Return for each step how much it changed the level, if there is no other step."""
    columns = np.asarray([[reading.place >= step.last for step in steps] for reading in readings])
    return _ratios(columns, readings)


def _ratios(columns: npt.NDArray[np.bool_], readings: Sequence[Reading]) -> list[Level]:
    """Fit the logs by columns and blocks. Nothing is returned for too few launches."""
    if not readings:
        return []
    _, blocks = np.unique([reading.block for reading in readings], return_inverse=True)
    design = _centred(columns.astype(float), blocks)
    logs = _centred(np.asarray([reading.log for reading in readings])[:, None], blocks)[:, 0]
    freedom = len(readings) - (blocks.max() + 1) - design.shape[1]
    if freedom < 1:
        return []
    inverse = np.linalg.pinv(design.T @ design)
    fitted = inverse @ design.T @ logs
    variance = float(np.sum((logs - design @ fitted) ** 2)) / freedom
    reach = special.stdtrit(freedom, 0.975) * np.sqrt(variance * np.diag(inverse))
    return [
        Level(ratio=math.exp(log), interval=(math.exp(log - half), math.exp(log + half)))
        for log, half in zip(fitted.tolist(), reach.tolist(), strict=True)
    ]
