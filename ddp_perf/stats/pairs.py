"""The verdict on pairs of launches: a group-sequential test of their log ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.core.duel import DuelOutcome, PairedVerdict
from ddp_perf.stats.duel.pair_plan import EQUIVALENCE_ERROR, PairedPlan
from ddp_perf.stats.duel.pair_power import minimum_detectable, pairs_to_decide
from ddp_perf.stats.duel.pairs_apart import most_apart, without_apart
from ddp_perf.stats.rule.comparison import upper_t

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

    def half_width(level: float) -> float:
        return upper_t(count - 1, level) * sd / math.sqrt(count)

    equal = most_apart(pairs, EQUIVALENCE_ERROR / looks) is not None
    return PairedLook(
        pairs=pairs,
        apart=pairs - count,
        mean=mean,
        sd=sd,
        difference=None if most is None else half_width(plan.difference_level(pairs)),
        equivalence=half_width(plan.equivalence_level(pairs)) if equal else None,
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
        counted += f" ({look.apart} set apart: a launch in a slow mode)"
    if outcome is DuelOutcome.EQUIVALENT and look.differs:
        return f"B takes {change}, which is within {within}, in {counted}"
    if outcome is DuelOutcome.EQUIVALENT:
        return f"B differs by less than {within} in {counted}"
    if outcome is not DuelOutcome.UNDECIDED:
        return f"B takes {change} in {counted}"
    if look.difference is None:
        return f"{counted} {'are' if look.pairs > 1 else 'is'} too few to show a difference"
    return f"{counted} show neither a difference nor that it is within {within}"
