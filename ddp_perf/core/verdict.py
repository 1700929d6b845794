"""The verdict of the judge on one metric of one case."""

from __future__ import annotations

import enum

import msgspec


class Outcome(str, enum.Enum):
    """The possible outcomes. PASS, IMPROVEMENT and those that begin with MEETS are good."""

    PASS = "PASS"
    IMPROVEMENT = "IMPROVEMENT"
    SUSPECT = "SUSPECT"
    REGRESSION = "REGRESSION"
    UNDECIDED = "UNDECIDED"
    NO_BASELINE = "NO_BASELINE"
    INCOMPARABLE = "INCOMPARABLE"
    INVALID = "INVALID"
    MEETS_TARGET = "MEETS TARGET"  # of an absolute target, whatever the baseline contains
    MISSES_TARGET = "MISSES TARGET"
    BAD_NODE = "BAD NODE"  # a node is slower than the others, or failed alone: it is not the code


# Outcomes that more launches of the same session may still change.
OPEN = (Outcome.UNDECIDED, Outcome.SUSPECT, Outcome.INVALID)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict: the outcome, its reason, and the figures behind it.

    ``ratio`` is current ÷ baseline of a lower-is-better metric (1.05: 5 % slower), and
    ``interval`` is its confidence interval. ``upper`` is its one-sided 99.5 % upper bound, over all
    looks: the session rules out what is slower. ``minimum_detectable`` is the minimum detectable
    effect: the smallest slow-down, as a fraction (0.04: 4 %), that this comparison finds with
    90 % power. Each is None if the data do not give it. ``more_launches`` is about the number of
    further launches of this session that would decide the verdict if the ratio stays the same;
    None if it is decided, or if no number would decide it. ``likely_launches`` decide an
    UNDECIDED verdict nine times in ten, because they allow for a ratio that moves; None if not
    even 100 do. ``more_sessions`` is the same as ``more_launches`` in further baseline sessions,
    where launches do not decide it; the ratio and the spread never stay the same, so it shows only
    whether sessions may decide it. ``assumed_sd`` is what sessions were assumed to differ by, for
    want of enough of them. ``chance`` is the probability of a SUSPECT session if nothing changed.
    ``off_level`` are the indexes of the baseline sessions on the slower side of a move within the
    reference.
    """

    outcome: Outcome
    reason: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    upper: float | None = None
    minimum_detectable: float | None = None
    more_launches: int | None = None
    likely_launches: int | None = None
    more_sessions: int | None = None
    assumed_sd: float | None = None
    chance: float | None = None
    off_level: tuple[int, ...] | None = None


class SessionPrior(msgspec.Struct, frozen=True, kw_only=True):
    """The prior of the between-session spread, from the other cases of the machine.

    ``sd`` is on the log scale (0.01: sessions differ by about 1 %). ``degrees_of_freedom`` is its
    weight, as a number of sessions (Smyth 2004: s0 and d0). An ``assumed`` one is from other
    machines, and is used only until the case has three sessions.
    """

    sd: float
    degrees_of_freedom: float
    assumed: bool = False
