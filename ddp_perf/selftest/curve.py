"""The result of a self-test: points that were measured, curves that were modelled."""

from __future__ import annotations

import enum

import msgspec
import numpy as np

from ddp_perf.core.environment import Environment
from ddp_perf.core.verdict import Outcome
from ddp_perf.selftest.power import PowerModel, Share, SlowDown, Spread

LEAST_TRIALS = 5  # fewer say little: with four found of four, the power may be 40 %
LEAST_SESSIONS = 3  # to tell how they differ
_ALARM_LEVEL = 0.01  # at which false alarms are too many


class SelftestOutcome(str, enum.Enum):
    """What the points say together."""

    CAN_GATE = "CAN_GATE"
    CANNOT_GATE = "CANNOT_GATE"
    FALSE_ALARMS = "FALSE_ALARMS"
    TOO_SHORT = "TOO_SHORT"


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One slow-down: what was injected, what came of it, and how the step time was judged."""

    percent: int  # injected; 0: nothing
    slow_down: SlowDown | None  # of the step time; None: nothing injected, or not known yet
    launches: int
    outcomes: dict[Outcome, int]  # one a trial
    found: Share  # REGRESSION


class FalseAlarms(msgspec.Struct, frozen=True, kw_only=True):
    """Unslowed sessions with a REGRESSION in any gated metric."""

    share: Share
    by_metric: dict[str, int]
    promised: float  # of a session of this case alone
    chance: float  # of so many or more, if the promise holds


class Modelled(msgspec.Struct, frozen=True, kw_only=True):
    """A power curve from measured variances."""

    launches: int  # of a session
    sessions: int
    stored: bool  # the spread is that of the stored sessions; else of this run's sessions
    spread: Spread
    model: PowerModel
    detectable: float | None  # the slow-down found with 90 % power

    def power_at(self, slow_down: float) -> float:
        return float(self.model.power(np.array([slow_down]))[0])


class PowerCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The self-test's result."""

    suite: str
    case_id: str
    environment: Environment
    tolerance: float  # of the step time
    false_alarm_rate: float  # a session
    alpha: float  # of one verdict
    launches: int  # of a session
    sessions: int  # sessions of a baseline
    points: tuple[Point, ...]  # by percent
    false_alarms: FalseAlarms
    modelled: tuple[Modelled, ...]
    stored_sessions: int
    launch_s: float | None  # median wall time; None without a launch
    missing_launches: int  # until every slow-down has trials enough, roughly
    sees: Point | None  # smallest from which on 90 % and more are found

    @property
    def measured(self) -> int:
        """Launches in all."""
        return sum(point.launches for point in self.points)

    @property
    def conclusion(self) -> SelftestOutcome:
        if any(point.found.trials < LEAST_TRIALS for point in self.points):
            return SelftestOutcome.TOO_SHORT
        if self.false_alarms.chance < _ALARM_LEVEL:
            return SelftestOutcome.FALSE_ALARMS
        return SelftestOutcome.CAN_GATE if self.sees else SelftestOutcome.CANNOT_GATE
