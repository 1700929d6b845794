"""The power of a night: how soon slower code, or a slow node, is found with which probability.

Both follow from the judge's own formulas: the variance components of a verdict, the level that its
share of the false-alarm rate leaves to it, and sessions that are suspect in a row.
"""

from __future__ import annotations

import functools
import math

import msgspec
import numpy as np
from scipy import special

from ddp_perf.plan.fleet_file import MOST_NIGHTS
from ddp_perf.stats.fleet import (
    DOUBTFUL,
    LEFT,
    NodeSpread,
    centre_variance,
    node_bound,
    node_comparison,
    starts_of,
)
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import Comparison, upper_session
from ddp_perf.stats.rule.suspicion import (
    SUSPECT_LEVEL,
    chance_to_confirm,
    level_of_one_session,
)
from ddp_perf.stats.rule.variance_components import VarianceComponents

_POINTS = 11  # of the error of the reference, by Gauss and Hermite
_ESTIMATES = 5  # of the spread of sessions
_LONGEST_ROW = 6  # of suspect sessions
_MOST_VISITS = 16  # of a slow node


class CodePower(msgspec.Struct, frozen=True, kw_only=True):
    """The power of one verdict on the code, session after session."""

    errors: VarianceComponents
    tolerance: float
    alpha: float  # of the verdict

    @property
    def smallest(self) -> float:
        """The minimum detectable effect of one session, as a fraction (power 90 %)."""
        return self._comparison.minimum_detectable(level_of_one_session(self.alpha))

    @property
    def _comparison(self) -> Comparison:
        return Comparison(
            difference=0.0,
            standard_error=self.errors.standard_error,
            degrees_of_freedom=self.errors.degrees_of_freedom,
            tolerance=self.tolerance,
        )

    def found(self, slower: float) -> Floats:
        """Return the probability that slower code is red by its first, second … session.

        All sessions share the error of the reference and the estimated spread. These are summed
        over; a session's own error is independent.
        """
        reference = self.errors.reference_variance(self.errors.reference_sessions)
        own = math.sqrt(max(0.0, self.errors.standard_error**2 - reference)) or 1e-12
        points, weights = np.polynomial.hermite_e.hermegauss(_POINTS)
        means = math.log1p(slower) + math.sqrt(reference) * points
        estimates = self._estimated_spreads()
        found = self._red_by_session(
            np.tile(means, len(estimates)), np.repeat(estimates, len(means)), own
        )
        weights = np.tile(weights, len(estimates))
        by_session: Floats = weights @ found / weights.sum()
        return by_session

    def _estimated_spreads(self) -> Floats:
        """Return equally likely estimates of the spread of sessions, as shares of the true one."""
        freedom = self.errors.spread.degrees_of_freedom
        middles = (np.arange(_ESTIMATES) + 0.5) / _ESTIMATES
        estimates: Floats = special.chdtri(freedom, 1 - middles) / freedom
        return estimates

    def _red_by_session(self, means: Floats, estimates: Floats, own: float) -> Floats:
        """Return, for each mean × session, the probability of red by then.

        What is not red yet is followed by the length of the row of suspects that it ends with, and
        by the number of slow sessions that informed the spread, because they looked like others.
        """
        in_row, found = np.zeros((len(means), _LONGEST_ROW)), np.zeros((len(means), MOST_NIGHTS))
        in_row[:, 0], informing = 1.0, np.zeros(len(means))
        squares = np.zeros(len(means))
        for session in range(MOST_NIGHTS):
            bounds = self._bounds(estimates, informing, squares)
            scores = (bounds - means[:, None]) / own
            exceeds = special.ndtr(-scores)
            suspect, red = exceeds[:, :1], exceeds[:, 1:]
            left = in_row.sum(axis=1)
            found[:, session] = (in_row * red).sum(axis=1)
            longer = in_row * (suspect - red)
            in_row = np.hstack([left[:, None] * (1 - suspect), longer[:, :-1]])
            in_row[:, -1] += longer[:, -1]
            ordinary = np.where(in_row.sum(axis=1) > 0, 1 - suspect[:, 0], 0.0)
            informing += ordinary
            squares += ordinary * _square_below(means, own, scores[:, 0])
        by_session: Floats = np.minimum(1.0, found.cumsum(axis=1))
        return by_session

    def _bounds(self, estimates: Floats, informing: Floats, squares: Floats) -> Floats:
        """Return the smallest difference of a suspect, and of red in a row of 1, 2 … suspects.

        The spread is that of the stored sessions and of the ``informing`` slow ones, with the sum
        of their squares.
        """
        errors = self.errors
        spread, freedom = errors.spread.variance, errors.spread.degrees_of_freedom
        estimated = (freedom * spread * estimates + squares) / (freedom + informing)
        of_reference = errors.reference_variance(errors.reference_sessions) / (spread or 1.0)
        differs = (1 + of_reference) * (
            np.maximum(estimated, errors.baseline_launch_noise) - spread
        )
        error = np.sqrt(np.maximum(0.0, errors.standard_error**2 + differs))
        bounds: Floats = np.maximum(math.log1p(self.tolerance), error[:, None] * self._quantiles)
        return bounds

    @property
    def _quantiles(self) -> Floats:
        alone = level_of_one_session(self.alpha)
        rows = [
            min(max(chance_to_confirm(n, self.alpha), alone), SUSPECT_LEVEL)
            for n in range(2, _LONGEST_ROW + 1)
        ]
        return _quantiles(self.errors.degrees_of_freedom, (max(SUSPECT_LEVEL, alone), alone, *rows))


@functools.lru_cache(maxsize=64)
def _quantiles(freedom: float, levels: tuple[float, ...]) -> Floats:
    return np.array([upper_session(freedom, level) for level in levels])


def _square_below(means: Floats, sd: float, scores: Floats) -> Floats:
    """Return the mean square of normal values below a bound, which is given in sds of them."""
    below = np.maximum(special.ndtr(scores), 1e-300)
    ratio = np.exp(-np.square(scores) / 2) / math.sqrt(2 * math.pi) / below
    mean = means - sd * ratio
    variance = np.maximum(0.0, 1 - scores * ratio - ratio**2) * sd**2
    squares: Floats = np.square(mean) + variance
    return squares


class NodePower(msgspec.Struct, frozen=True, kw_only=True):
    """The power of a verdict on one node, visit after visit."""

    spread: NodeSpread
    visits: int  # of each node before it became slow
    nodes: int  # in one session
    every: int  # nights from visit to visit
    verdicts: int  # on nodes, in one session
    rate: float  # of false discoveries
    tolerance: float

    def found(self, slower: float) -> Floats:
        """Return the probability that a node is found slow by each night after it became slow.

        It became so on any night between two visits. A node that is slow for the first time is
        suspect. It is measured again on the next night, and is BAD NODE if it still seems slow.
        """
        first = self.rate / self.verdicts
        suspect = np.maximum.accumulate([self._exceeds(slower, n, first) for n in _VISITS])
        still = np.maximum(suspect, [self._exceeds(slower, n, DOUBTFUL, LEFT) for n in _VISITS])
        nights = MOST_NIGHTS + self.every + 1
        waiting, found, before = np.zeros((len(still), nights)), np.zeros(nights), 0.0
        waiting[0, : self.every] = 1 / self.every
        for visit, confirmed in enumerate(still[1:]):
            now = waiting[visit]
            share = (suspect[visit] - before) / (1 - before) if before < 1 else 1.0
            found[1:] += share * confirmed * now[:-1]
            waiting[visit + 1, 1:] += share * (1 - confirmed) * now[:-1]
            waiting[visit + 1, self.every :] += (1 - share) * now[: -self.every]
            before = float(suspect[visit])
        by_night: Floats = np.minimum(1.0, np.cumsum(found))[:MOST_NIGHTS]
        return by_night

    def _exceeds(self, slower: float, visits: int, chance: float, share: float = 1.0) -> float:
        """Return the probability that so many slow visits suffice, by the best of their starts.

        They suffice at this chance of a healthy node, and at a share of the tolerance.
        """
        starts, tolerance = starts_of(self.visits + visits), share * self.tolerance
        level = chance / len(starts)
        centre = centre_variance(self.spread, nodes=self.nodes, visits=self.visits)
        effect, found = math.log1p(slower), 0.0
        for since in [one for one in starts if one <= visits]:
            comparison = node_comparison(
                self.spread,
                effect,
                before=self.visits,
                since=since,
                centre=centre,
                tolerance=tolerance,
            )
            error = comparison.standard_error or 1e-12
            bound = node_bound(comparison, since, level)
            of_others = math.sqrt(self.spread.node + self.spread.visit) or 1e-12
            enough = float(special.ndtr((effect - math.log1p(tolerance)) / of_others))
            found = max(found, enough * float(special.ndtr((effect - bound) / error)))
        return found


_VISITS = range(1, _MOST_VISITS + 1)


def night_of(found: Floats, share: float) -> int | None:
    """Return the first night by which this share is found, or None within the horizon."""
    night = int(np.searchsorted(found, share - 1e-12))
    return night + 1 if night < len(found) else None


def smallest_found(power: CodePower | NodePower, *, by: int, share: float) -> float | None:
    """Return the smallest slow-down that is found by a night with this probability, by bisection.

    None: not even one by 100 %.
    """
    low, high = 0.0, 1.0
    if power.found(high)[by - 1] < share:
        return None
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if power.found(middle)[by - 1] >= share else (middle, high)
    return high
