"""Pairs of launches: how they are planned, judged, and how many decide a difference."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import special

from ddp_perf.core.verdict import DuelOutcome, PairedVerdict
from ddp_perf.stats.interval import half_width, upper_t
from ddp_perf.stats.model_error import ModelError
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.sequential import fewest, level_at

# The plan of a paired test: how often it may be wrong, and after how many pairs one looks.


EQUIVALENCE_ERROR = 0.05  # of EQUIVALENT, over all looks, if the true ratio is at the tolerance

# With six pairs Student's t holds its level on differences with heavy tails. Each look has half as
# many pairs more: finer ones take hardly fewer pairs, and find less, since each look costs alpha.
_FIRST, _GROWTH = 6, 1.5


class PairedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a paired test. It must not depend on what the pairs show.

    ``alpha`` is the rate of SLOWER, and as much of FASTER, over all looks, if nothing differs.
    The sides are equivalent if the ratio lies between 1 ÷ (1 + ``tolerance``) and 1 + tolerance:
    the answer is the same whichever of them is called A. ``looks`` are the numbers of pairs after
    which one looks: they rise. If a model gave the times, its error is in the intervals.

    Raises ValueError if one of them makes no sense.
    """

    alpha: float
    tolerance: float
    looks: tuple[int, ...]
    model_error: ModelError = ModelError()

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha must lie between 0 and 0.5, not {self.alpha!r}")
        if not 0 < self.tolerance < math.inf:
            raise ValueError(f"the tolerance must be positive and finite, not {self.tolerance!r}")
        if list(self.looks) != sorted({*self.looks} - {0}) or not self.looks or self.looks[0] < 0:
            raise ValueError(f"looks must be rising numbers of pairs, not {self.looks!r}")
        if not all(0 <= share < 1 for share in self.model_error):
            raise ValueError(f"the model's errors must lie in [0, 1), not {self.model_error!r}")

    @property
    def margin(self) -> float:
        """The tolerance on the log scale."""
        return math.log1p(self.tolerance)

    def difference_level(self, pairs: int) -> float:
        """Return the one-sided level at which SLOWER, or FASTER, is judged after these pairs."""
        return level_at(self.alpha, self.looks, pairs)

    def equivalence_level(self, pairs: int) -> float:
        """Return the level of each of the two one-sided tests of EQUIVALENT after these pairs."""
        return level_at(EQUIVALENCE_ERROR, self.looks, pairs)

    def half(self, mean: float, sd: float, pairs: int, level: float) -> float:
        """Return half the width of the interval around the mean log of so many pairs."""
        return self.model_error.widened(half_width(sd, pairs, level), mean)


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


# The power of pairs of launches: the least slow-down that is found, and how many it takes.


_MISSED = 0.1  # the minimum detectable slow-down is found nine times in ten
_FURTHEST = 1000  # more pairs than that are no advice


def minimum_detectable(spread: float, plan: PairedPlan) -> float | None:
    """Return the slow-down, as a fraction, that is found SLOWER nine times in ten.

    ``spread`` is the sd of the log ratio of a pair. The power of the last look alone is a bound
    of that of all looks, and nearly reaches it. A slow-down within the tolerance is EQUIVALENT
    where the spread is small, so that the result is never below the tolerance. It is found a little
    more often if a model's error prevails. None: a plan of fewer than two pairs.

    Raises ValueError if the spread is negative or not finite.
    """
    if not 0 <= spread < math.inf:
        raise ValueError(f"a spread must be finite and not negative, not {spread!r}")
    pairs = plan.looks[-1]
    if pairs < 2:
        return None
    critical = upper_t(pairs - 1, plan.difference_level(pairs))
    standard_error = spread / math.sqrt(pairs)
    half = critical * standard_error
    chance = float(special.nctdtrinc(pairs - 1, _MISSED, critical)) * standard_error - half
    shift = plan.model_error.exceeding(half, chance)
    return math.expm1(max(plan.margin, min(shift, 300.0)))


def pairs_to_decide(mean: float, spread: float, pairs: int, plan: PairedPlan) -> int | None:
    """Return how many further pairs would decide, if the mean and the spread stay the same.

    Within the plan it is up to its next look that decides. None: no number of up to a thousand.
    """
    last = plan.looks[-1]
    difference, equivalence = plan.difference_level(last), plan.equivalence_level(last)

    def decides(count: int) -> bool:
        differs = abs(mean) > plan.half(mean, spread, count, difference)
        return differs or abs(mean) + plan.half(mean, spread, count, equivalence) <= plan.margin

    found = fewest(range(max(2, pairs + 1), pairs + _FURTHEST + 1), decides)
    if found is None:
        return None
    return next((look for look in plan.looks if look >= found), found) - pairs


# Pairs that lie apart from the others, because one of their launches was in a slow mode.


_LEVEL = 0.001  # of the test: normal pairs lose one in a look of a thousand
_MOST_SHARE = 1 / 3  # of the pairs may lie apart

# Two independent launches of one law differ by a given amount, other than none, at most once in
# four: the chances of x and x + d next to each other, summed, are at most ½ · ½.
_SAME_DIFFERENCE = 1 / 4


@functools.lru_cache(maxsize=1024)  # a case's looks are the same for each of its metrics
def most_apart(pairs: int, level: float) -> int | None:
    """Return how many pairs may be set aside without making a difference out of chance.

    If each launch is in one of two modes, some pairs have a difference of one gap. The rest must
    be so many that they are not those pairs, at this level. None: not even all of them are enough.
    """
    most = None
    for apart in range(int(_MOST_SHARE * pairs) + 1):
        if special.bdtrc(pairs - apart - 1, pairs, _SAME_DIFFERENCE) <= level:
            most = apart
    return most


def without_apart(logs: Floats, most: int) -> Floats:
    """Return the logs without those that lie apart: the generalised ESD test of many outliers.

    Up to ``most`` are taken away one by one, the farthest from the mean first, and all up to the
    last one that is significant stay away (Rosner, Technometrics 25, 1983): so two that hide each
    other are found.
    """
    rest, kept = logs, logs
    for _ in range(min(most, len(logs) - 3)):
        if rest.min() == rest.max():
            break
        distances = np.abs(rest - rest.mean())
        farthest = int(np.argmax(distances))
        significant = distances[farthest] > _critical(len(rest)) * rest.std(ddof=1)
        rest = np.delete(rest, farthest)
        if significant:
            kept = rest
    return kept


@functools.lru_cache(maxsize=1024)
def _critical(count: int) -> float:
    """Return the critical distance of the farthest of so many normal values, in their sd."""
    t = upper_t(count - 2, _LEVEL / (2 * count))
    return (count - 1) * t / math.sqrt((count - 2 + t * t) * count)


# The verdict on pairs of launches: a group-sequential test of their log ratios.


_LARGEST_LOG = 300.0  # exp stays finite


class PairedLook(msgspec.Struct, frozen=True, kw_only=True):
    """A look at some pairs: the mean of their logs, its margins, and whether pairs suffice."""

    pairs: int
    apart: int  # pairs that do not count: a launch of theirs was in a slow mode
    mean: float
    sd: float
    difference: float | None  # half the width of the interval that excludes 0; None: too few pairs
    equivalence: float | None

    def outcome(self, margin: float) -> DuelOutcome:
        """Return the outcome: EQUIVALENT first, also if there is a small difference."""
        if self.equivalence is not None and abs(self.mean) + self.equivalence <= margin:
            return DuelOutcome.EQUIVALENT
        if self.differs:
            return DuelOutcome.SLOWER if self.mean > 0 else DuelOutcome.FASTER
        return DuelOutcome.UNDECIDED

    @property
    def differs(self) -> bool:
        """True if the interval of the difference excludes 0."""
        return self.difference is not None and abs(self.mean) > self.difference


def judge_pairs(logs: Sequence[float], plan: PairedPlan, *, ended: bool = False) -> PairedVerdict:
    """Judge pairs by the logs of B ÷ A of a lower-is-better metric, in the order of measurement.

    The first planned look that decides is the verdict, whatever came after it; so one may call
    this as often as one likes. Between two looks the verdict is UNDECIDED, unless the pairs
    ``ended`` there (the time is over, or a person stopped them): then that is the last look. Pairs
    beyond the last planned look do not count.

    SLOWER and FASTER are tests of Student's t at nominal levels (Jennison & Turnbull 2000, §4.4).
    EQUIVALENT is two one-sided tests (Schuirmann, J. Pharmacokin. Biopharm. 15, 1987).

    Raises ValueError if a log is not finite.
    """
    if not all(map(math.isfinite, logs)):
        raise ValueError(f"log ratios must be finite, not {list(logs)!r}")
    measured = min(len(logs), plan.looks[-1])
    last = (measured,) if ended and measured not in plan.looks else ()
    for pairs in (*(look for look in plan.looks if look <= measured), *last):
        look = look_at(logs[:pairs], plan)
        if (outcome := look.outcome(plan.margin)) is not DuelOutcome.UNDECIDED:
            return _verdict(look, outcome, plan)
    return _verdict(look_at(logs[:measured], plan), DuelOutcome.UNDECIDED, plan)


def look_at(logs: Sequence[float], plan: PairedPlan) -> PairedLook:
    """Return what these pairs show: the mean and spread of those that do not lie apart."""
    pairs, looks = len(logs), len(plan.looks)
    most = most_apart(pairs, plan.alpha / looks)
    kept = without_apart(np.asarray(logs, dtype=float), most or 0)
    count = len(kept)
    mean = float(kept.mean()) if count else 0.0
    sd = _sd(kept.tolist())
    equal = most_apart(pairs, EQUIVALENCE_ERROR / looks) is not None

    def half(level: float) -> float:
        return plan.half(mean, sd, count, level)

    return PairedLook(
        pairs=pairs,
        apart=pairs - count,
        mean=mean,
        sd=sd,
        difference=None if most is None else half(plan.difference_level(pairs)),
        equivalence=half(plan.equivalence_level(pairs)) if equal else None,
    )


def _sd(values: Sequence[float]) -> float:
    """Return the sd; exactly 0 if all values are equal, whatever their mean is rounded to."""
    if len(values) < 2 or min(values) == max(values):
        return 0.0
    return float(np.std(values, ddof=1))


def _verdict(look: PairedLook, outcome: DuelOutcome, plan: PairedPlan) -> PairedVerdict:
    if not look.pairs:
        return PairedVerdict(outcome=outcome, reason="no pair of launches was measured", pairs=0)
    half, error = look.difference, plan.alpha
    if outcome is DuelOutcome.EQUIVALENT:
        half, error = look.equivalence, EQUIVALENCE_ERROR
    further = None
    if outcome is DuelOutcome.UNDECIDED:
        further = pairs_to_decide(look.mean, look.sd, look.pairs, plan)
    return PairedVerdict(
        outcome=outcome,
        reason=_reason(look, outcome, plan),
        pairs=look.pairs,
        apart=look.apart,
        ratio=_ratio(look.mean),
        interval=None if half is None else (_ratio(look.mean - half), _ratio(look.mean + half)),
        confidence=None if half is None else 1 - 2 * error,
        minimum_detectable=minimum_detectable(look.sd, plan) if look.pairs > 1 else None,
        more_pairs=further,
    )


def _ratio(log: float) -> float:
    return math.exp(max(-_LARGEST_LOG, min(log, _LARGEST_LOG)))


def _reason(look: PairedLook, outcome: DuelOutcome, plan: PairedPlan) -> str:
    share = _ratio(look.mean) - 1
    change = f"{abs(share):.1%}".replace("%", " %") + (" more" if share > 0 else " less")
    within = f"± {100 * plan.tolerance:g} %"
    counted = f"{look.pairs} pair{'s' if look.pairs != 1 else ''}"
    if look.apart:
        counted += f" ({look.apart} set apart for a far slower launch)"
    if outcome is DuelOutcome.EQUIVALENT and look.differs:
        return f"B takes {change}, which is within {within}, in {counted}"
    if outcome is DuelOutcome.EQUIVALENT:
        return f"B differs by less than {within} in {counted}"
    if outcome is not DuelOutcome.UNDECIDED:
        return f"B takes {change} in {counted}"
    if look.difference is None:
        return f"{counted} {'are' if look.pairs > 1 else 'is'} too few to show a difference"
    ends = (look.mean - look.difference, look.mean + look.difference)
    low, high = (f"{100 * (_ratio(end) - 1):+.0f} %" for end in ends)
    return f"{counted} do not decide: the change is between {low} and {high}"


# The probability that the best of several settings is the best, from paired launches.


_DRAWS = 10_000  # a probability of one half is then known to 0.5 %
_SEED = 1
_RESOLUTION = 1e-4  # of a log: figures that are equal do not show a smaller spread
# The sd of the settings, on the log scale: 0.1 to 30 %, each order of size as likely. With a flat
# prior instead, the best of eight seems sure where it is picked by its luck: of those stated at
# 94 %, 66 % were the best (benchmarks/duel_choices.py).
_SETTING_SDS = np.geomspace(0.001, 0.3, 24)
_QUANTILES = (np.arange(64) + 0.5) / 64  # of the law of the noise


def best_chances(blocks: Sequence[Sequence[float | None]]) -> tuple[float, ...]:
    """Return for each setting the probability that its metric is the lowest one; they sum to 1.

    ``blocks`` are rows of the log of the metric of each setting, measured one after the other;
    None: this setting was dropped before. The model is a two-way layout, block + setting + noise of
    one spread, in which the settings are a sample of a normal law whose sd is estimated with them
    (Gelman et al., Bayesian Data Analysis, 2013, §5.4). Draws of the posterior have a fixed seed.
    Without two settings in two blocks there is no spread, and each setting is as likely.

    Raises ValueError if a log is not finite, rows differ in length, or a setting has no figure.
    """
    settings = {len(row) for row in blocks}
    if len(settings) != 1 or 0 in settings:
        raise ValueError("each block must have a place for each setting")
    table = np.array([[math.nan if log is None else log for log in row] for row in blocks])
    measured = np.isfinite(table)
    given = np.array([[log is not None for log in row] for row in blocks])
    if (measured != given).any() or not measured.any(axis=0).all():
        raise ValueError("each setting needs a figure, and the logs must be finite")
    fit = _fit(table, measured)
    count = len(blocks[0])
    if fit is None:
        return (1 / count,) * count
    counts = np.bincount(_lowest(fit), minlength=count)
    return tuple(float(share) for share in counts / _DRAWS)


def _lowest(fit: _Fit) -> npt.NDArray[np.int64]:
    """Draw which setting is the lowest one."""
    count, random = len(fit.levels), np.random.default_rng(_SEED)
    # Independent contrasts: the settings without their common level, rotated.
    basis = np.linalg.qr(np.hstack([np.ones((count, 1)), np.eye(count)[:, 1:]]))[0][:, 1:]
    shares, rotation = np.linalg.eigh(basis.T @ fit.covariance @ basis)
    contrasts = basis @ rotation
    found = contrasts.T @ fit.levels
    # The law of the noise and the sd of the settings, on a grid of both.
    noises = fit.noise / special.chdtri(fit.freedom, _QUANTILES)[:, None, None] * shares
    total = noises + np.square(_SETTING_SDS)[:, None]
    logs = -0.5 * (np.log(total) + np.square(found) / total).sum(axis=2)
    weights = np.exp(logs - logs.max()).ravel()
    cells = random.choice(weights.size, size=_DRAWS, p=weights / weights.sum())
    noise = noises[cells // len(_SETTING_SDS), 0]
    prior = np.square(_SETTING_SDS[cells % len(_SETTING_SDS)])[:, None]
    kept = prior / (prior + noise)
    drawn = kept * found + np.sqrt(kept * noise) * random.standard_normal(noise.shape)
    lowest: npt.NDArray[np.int64] = np.argmin(drawn @ contrasts.T, axis=1)
    return lowest


class _Fit(NamedTuple):
    levels: Floats  # of the settings, up to a constant
    covariance: Floats  # of the levels, in units of the noise's variance
    noise: float  # sum of squares
    freedom: int


def _fit(table: Floats, measured: npt.NDArray[np.bool_]) -> _Fit | None:
    """Fit block + setting by least squares; None if the settings or the noise cannot be told."""
    rows, columns = np.nonzero(measured)
    blocks, settings = np.eye(table.shape[0])[rows], np.eye(table.shape[1])[columns]
    design = np.hstack([settings, blocks[:, 1:]])  # the first block is the constant of the settings
    freedom = len(rows) - design.shape[1]
    if freedom < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ design.T @ table[measured]
    noise = float(np.square(table[measured] - design @ fitted).sum()) + freedom * _RESOLUTION**2
    count = table.shape[1]
    return _Fit(fitted[:count], inverse[:count, :count], noise, freedom)


# The choice between the wall time and the CPU time of a step, by launches of one side alone.


CALIBRATION_LAUNCHES = 6  # two more choose the worse one hardly less often (benchmarks/duel.py)
# CPU time decides if the spread of wall time is that much larger: then wall time takes half as
# many pairs again. Below that, wall time is the better one, since it is what a user waits for.
_CLEARLY = 1.25


class Yardstick(msgspec.Struct, frozen=True, kw_only=True):
    """The metric that decides on a CPU, and the spreads of a pair's log ratio that chose it."""

    metric: Literal["step_time", "cpu_time"]
    wall: float
    cpu: float
    reason: str


def pair_spread(levels: Sequence[float]) -> float:
    """Estimate the sd of the log ratio of a pair from launches of one side, in their order.

    It is the root mean square of successive differences (von Neumann 1941): what slows the machine
    down for minutes cancels in it as in a pair.

    Raises ValueError with fewer than two launches, or if a level is not positive and finite.
    """
    if len(levels) < 2:
        raise ValueError(f"a spread takes at least two launches, not {len(levels)}")
    if not all(0 < level < math.inf for level in levels):
        raise ValueError(f"levels must be positive and finite, not {list(levels)!r}")
    return math.sqrt(statistics.fmean(math.log(b / a) ** 2 for a, b in pairwise(levels)))


def choose_yardstick(wall: Sequence[float], cpu: Sequence[float]) -> Yardstick:
    """Choose by the step times and the CPU times of the same launches of one side, in order.

    CPU time decides only if its spread is clearly the smaller one: it does not see a step that
    waits longer. The choice depends on one side alone, so that it favours no verdict.

    Raises ValueError as `pair_spread` does, or if the numbers of launches differ.
    """
    if len(wall) != len(cpu):
        raise ValueError(f"{len(wall)} step times and {len(cpu)} CPU times are not of one series")
    wall_spread, cpu_spread = pair_spread(wall), pair_spread(cpu)
    steadier = cpu_spread * _CLEARLY < wall_spread
    spreads = (
        f"launches of one side differ by {100 * wall_spread:.1f} % in step time"
        f" and by {100 * cpu_spread:.1f} % in CPU time"
    )
    return Yardstick(
        metric="cpu_time" if steadier else "step_time",
        wall=wall_spread,
        cpu=cpu_spread,
        reason=f"{'CPU' if steadier else 'step'} time decides: {spreads}",
    )
