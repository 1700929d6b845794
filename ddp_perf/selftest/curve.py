"""The result of a self-test: its points, and what they support."""

from __future__ import annotations

import enum

import msgspec

from ddp_perf.core.environment import Environment
from ddp_perf.core.verdict import Outcome
from ddp_perf.selftest.power import SlowDown
from ddp_perf.stats.share import Share

MOSTLY = 0.5  # the gate must find a slow-down more often than not
LEAST_TRIALS = 6  # fewer cannot show that: five found of five may be a power of 48 %
_ALARM_LEVEL = 0.01  # significance level of the test for too many false alarms


class SelftestOutcome(str, enum.Enum):
    """The conclusion that the 95 % intervals of all points support."""

    CAN_GATE = "CAN_GATE"
    CANNOT_GATE = "CANNOT_GATE"
    FALSE_ALARMS = "FALSE_ALARMS"
    TOO_SHORT = "TOO_SHORT"


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One injected slow-down, with the observed one and the verdicts on the step time."""

    percent: int  # injected; 0: nothing
    slow_down: (
        SlowDown | None
    )  # observed in the step time; None: nothing injected, or too few launches
    launches: int
    outcomes: dict[Outcome, int]  # their sum is the number of trials
    found: Share  # REGRESSION


class FalseAlarms(msgspec.Struct, frozen=True, kw_only=True):
    """The unslowed sessions with a REGRESSION in any gated metric."""

    share: Share
    by_metric: dict[str, int]
    promised: float  # rate, for a session of this case alone
    chance: float  # probability of this number or more, if the promised rate is true


class PowerCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a self-test."""

    suite: str
    case_id: str
    environment: Environment
    tolerance: float  # of the step time
    false_alarm_rate: float  # per session
    alpha: float  # of one verdict
    launches: int  # per session
    sessions: int  # of a baseline
    points: tuple[Point, ...]  # by percent
    false_alarms: FalseAlarms
    launch_s: float | None  # median wall time; None without a launch
    missing_launches: int  # an estimate of the launches until every slow-down has enough trials

    @property
    def measured(self) -> int:
        """The number of all launches."""
        return sum(point.launches for point in self.points)

    @property
    def smallest_found(self) -> Point | None:
        """The smallest slow-down that the gate finds more often than not, as all larger ones.

        The points are tested from the largest on until one fails, each by the lower end of its
        95 % interval. So the whole sequence is wrong at most as often as one test (Maurer,
        Hothorn & Lehmacher 1995).
        """
        found = None
        for point in reversed(self.points):
            if point.percent == 0 or point.found.interval[0] <= MOSTLY:
                break
            found = point
        return found

    @property
    def conclusion(self) -> SelftestOutcome:
        if any(point.found.trials < LEAST_TRIALS for point in self.points):
            return SelftestOutcome.TOO_SHORT
        if self.false_alarms.chance < _ALARM_LEVEL:
            return SelftestOutcome.FALSE_ALARMS
        if self.smallest_found:
            return SelftestOutcome.CAN_GATE
        is_missed = self.points[-1].found.interval[1] < MOSTLY
        return SelftestOutcome.CANNOT_GATE if is_missed else SelftestOutcome.TOO_SHORT
