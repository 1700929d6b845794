"""The verdict of a duel on one metric of one case: side B beside side A."""

from __future__ import annotations

import enum

import msgspec


class DuelOutcome(str, enum.Enum):
    """The possible outcomes: B against A."""

    FASTER = "FASTER"
    EQUIVALENT = "EQUIVALENT"
    SLOWER = "SLOWER"
    UNDECIDED = "UNDECIDED"


class PairedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on pairs of launches, one of each side, and the figures behind it.

    ``ratio`` is B ÷ A of a lower-is-better metric (1.05: B is 5 % slower), and ``interval`` its
    confidence interval, valid at whichever look the test stopped. ``minimum_detectable`` is the
    smallest slow-down, as a fraction, that all planned pairs find nine times in ten. ``apart`` of
    the pairs lie so far from the others that a launch was in a slow mode: they do not count.
    ``more_pairs`` is about the number of further pairs that would decide it if the ratio and the
    spread stay the same; None if it is decided, or if no number of up to a thousand would.
    """

    outcome: DuelOutcome
    reason: str  # one sentence, without a remedy
    pairs: int
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None  # of the interval: 0.9 if EQUIVALENT, else 1 − 2 alpha
    apart: int = 0
    minimum_detectable: float | None = None
    more_pairs: int | None = None
