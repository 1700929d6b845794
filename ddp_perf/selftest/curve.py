"""The result of a self-test: measured points and modelled curves."""

from __future__ import annotations

import enum

import msgspec
import numpy as np

from ddp_perf.core.environment import Environment
from ddp_perf.core.verdict import Outcome
from ddp_perf.selftest.power import PowerModel, Share, SlowDown, Spread

LEAST_TRIALS = 5  # with fewer the interval is too wide: four found of four may be a power of 40 %
LEAST_SESSIONS = 3  # for an estimate of the between-session variance
_ALARM_LEVEL = 0.01  # significance level of the test for too many false alarms


class SelftestOutcome(str, enum.Enum):
    """The conclusion from all points."""

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


class Modelled(msgspec.Struct, frozen=True, kw_only=True):
    """A power curve from measured variances."""

    launches: int  # per session
    sessions: int  # of the baseline
    stored: bool  # True: the spread is from stored sessions; False: from the sessions of this run
    spread: Spread
    model: PowerModel
    detectable: float | None  # minimum detectable effect: the slow-down found with 90 % power

    def power_at(self, slow_down: float) -> float:
        return float(self.model.power(np.array([slow_down]))[0])


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
    modelled: tuple[Modelled, ...]
    stored_sessions: int
    launch_s: float | None  # median wall time; None without a launch
    missing_launches: int  # an estimate of the launches until every slow-down has enough trials
    sees: Point | None  # the smallest from which on at least 90 % of the trials are found

    @property
    def measured(self) -> int:
        """The number of all launches."""
        return sum(point.launches for point in self.points)

    @property
    def conclusion(self) -> SelftestOutcome:
        if any(point.found.trials < LEAST_TRIALS for point in self.points):
            return SelftestOutcome.TOO_SHORT
        if self.false_alarms.chance < _ALARM_LEVEL:
            return SelftestOutcome.FALSE_ALARMS
        return SelftestOutcome.CAN_GATE if self.sees else SelftestOutcome.CANNOT_GATE
