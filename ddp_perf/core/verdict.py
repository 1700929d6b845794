"""What the judge says of one metric of one case."""

from __future__ import annotations

import enum

import msgspec


class Outcome(str, enum.Enum):
    """The closed list of answers; only PASS and IMPROVEMENT are good news."""

    PASS = "PASS"
    IMPROVEMENT = "IMPROVEMENT"
    SUSPECT = "SUSPECT"
    REGRESSION = "REGRESSION"
    INCONCLUSIVE = "INCONCLUSIVE"
    NO_BASELINE = "NO_BASELINE"
    INCOMPARABLE = "INCOMPARABLE"
    INVALID = "INVALID"
    MEETS_PUBLISHED = "MEETS PUBLISHED"  # of a figure without a spread: no PASS, no REGRESSION
    BELOW_PUBLISHED = "BELOW PUBLISHED"


# What more launches of the same session may still decide.
UNDECIDED = (Outcome.INCONCLUSIVE, Outcome.SUSPECT, Outcome.INVALID)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One judgement: what was concluded, how sure, and why.

    ``ratio`` is current ÷ baseline of a lower-is-better metric (1.05: 5 % slower) and
    ``interval`` its confidence interval. ``minimum_detectable`` is the smallest slow-down,
    as a fraction (0.04: 4 %), that this comparison finds with 90 % power. Each is None
    where the data do not give it. ``more_launches``: about how many more of this session's would
    decide it, the ratio staying as it is; None where it is decided, or none would.
    """

    outcome: Outcome
    reason: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    minimum_detectable: float | None = None
    more_launches: int | None = None


class SessionPrior(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine's other cases say of the session-to-session spread.

    ``sd`` is on the log scale (0.01: sessions differ by about 1 %); ``degrees_of_freedom``
    is how many sessions' worth of evidence it counts for (Smyth 2004: s0 and d0).
    """

    sd: float
    degrees_of_freedom: float
