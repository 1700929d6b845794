"""The result of a self-test: its points, what they support, as text, and its file."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
from scipy import special

from ddp_perf.core.environment import Environment
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import ResultsError
from ddp_perf.render.model import Table, figures
from ddp_perf.render.terminal import Block
from ddp_perf.render.units import (
    ABSENT,
    counted,
    describe_duration,
    percent_range,
    short_percent,
    to_json,
)
from ddp_perf.stats.interval import CONFIDENCE, Share
from ddp_perf.stats.robust import robust_sd
from ddp_perf.system.files import VersionedJson

# The observed slow-down of trials, and how many trials show a rate.


def trials_to_show(rate: float) -> int:
    """Return how many trials, none of them found, have an interval that is below ``rate``."""
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log1p(-rate))


class SlowDown(msgspec.Struct, frozen=True, kw_only=True):
    """The observed slow-down of slowed launches, as fractions."""

    value: float
    interval: tuple[float, float]  # 95 %, two-sided, approximate


def slow_down_of(slowed: Sequence[float], unslowed: Sequence[float]) -> SlowDown | None:
    """Return the ratio of the medians, less 1; None if a side has fewer than two launches.

    The sd of a median of n normal logs is ``sqrt(π/2) s ÷ sqrt(n)``. s is their median absolute
    deviation × 1.4826, so that launches in a slow mode do not widen it.
    """
    if min(len(slowed), len(unslowed)) < 2:
        return None
    sides = [[math.log(step) for step in side] for side in (slowed, unslowed)]
    variances = [math.pi / 2 * robust_sd(side) ** 2 / len(side) for side in sides]
    ratio = statistics.median(sides[0]) - statistics.median(sides[1])
    margin = float(special.ndtri((1 + CONFIDENCE) / 2)) * math.sqrt(sum(variances))
    return SlowDown(
        value=math.expm1(ratio), interval=(math.expm1(ratio - margin), math.expm1(ratio + margin))
    )


# The result of a self-test: its points, and what they support.


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


# The self-test as text and as JSON.


SCHEMA_VERSION = 1
_REMEDY = "More launches, a quieter machine or a larger case may help"
# Outcomes of the other trials, by column of the table.
_OTHERS = (
    (Outcome.SUSPECT,),
    (Outcome.UNDECIDED, Outcome.INVALID),
    (Outcome.PASS, Outcome.IMPROVEMENT),
)


_COLUMNS = figures(
    "injected %",
    "observed %",
    "laun\u00adches",
    "found",
    "95 % interval %",
    "suspect",
    "undecided",
    "passed",
)


class SelftestFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file ``selftest.json``."""

    schema_version: int = SCHEMA_VERSION
    conclusion: SelftestOutcome
    sentence: str
    smallest_found: Point | None = None
    curve: PowerCurve


def selftest_json(curve: PowerCurve) -> bytes:
    """Return the JSON of the curve, with the conclusion as a sentence."""
    file = SelftestFile(
        conclusion=curve.conclusion,
        sentence=conclusion_of(curve),
        smallest_found=curve.smallest_found,
        curve=curve,
    )
    return f"{to_json(file)}\n".encode()


def selftest_parts(curve: PowerCurve) -> list[Block]:
    """Return the table of points, notes that explain it, and the conclusion."""
    table = Table.of_texts(_COLUMNS, map(_row, curve.points))
    return [_what(curve), _how(curve), table, *_notes(curve), "", f"{conclusion_of(curve)}."]


def conclusion_of(curve: PowerCurve) -> str:
    """Return the conclusion in one sentence, without its full stop."""
    match curve.conclusion:
        case SelftestOutcome.FALSE_ALARMS:
            return f"This gate raises too many false alarms here: {_alarms(curve.false_alarms)}"
        case SelftestOutcome.TOO_SHORT:
            return _too_short(curve)
        case SelftestOutcome.CANNOT_GATE:
            return _cannot_gate(curve)
        case SelftestOutcome.CAN_GATE:
            return _finds(curve)


def interval_text(share: Share) -> str:
    """Return the 95 % interval as text, in per cent."""
    return percent_range(*share.interval)


def _finds(curve: PowerCurve) -> str:
    point = curve.smallest_found
    assert point is not None  # else the conclusion is another
    assert point.slow_down is not None  # the gate found it, so it was measured
    return (
        f"On this machine, with {counted(curve.launches, 'launch')}, this gate finds a slow-down of"
        f" {_size(point.slow_down)} % or more in at least {100 * point.found.interval[0]:.0f} % of"
        " sessions. This does not include how sessions differ"
    )


def _cannot_gate(curve: PowerCurve) -> str:
    largest = curve.points[-1]
    return (
        f"This machine cannot gate: even {largest.percent} % is found only"
        f" {_times(largest.found)}. {_REMEDY}"
    )


def _too_short(curve: PowerCurve) -> str:
    trials = min(point.found.trials for point in curve.points)
    if trials >= LEAST_TRIALS:
        largest = curve.points[-1]
        return (
            f"Too short: {largest.percent} % is found {_times(largest.found)}, which may be more or"
            f" less than half; run the command again to continue. {_REMEDY}"
        )
    more = curve.missing_launches
    time = f", {describe_duration(more * curve.launch_s)}" if curve.launch_s else ""
    return (
        f"Too short: a slow-down has only {trials} trials, and {LEAST_TRIALS} are needed. About"
        f" {more} more launches are needed{time}; run the command again to continue"
    )


def _times(share: Share) -> str:
    return f"{share.found} of {share.trials} times, 95 % interval {interval_text(share)}"


def _what(curve: PowerCurve) -> str:
    return (
        f"{curve.case_id} of {curve.suite} on {curve.environment.accelerator}:"
        f" step time of {counted(curve.measured, 'launch')}, some of them slowed on purpose"
    )


def _how(curve: PowerCurve) -> str:
    return (
        f"A session is {counted(curve.launches, 'launch')}, judged against the"
        f" {curve.sessions} unslowed sessions before it; tolerance"
        f" {short_percent(curve.tolerance)}, {short_percent(curve.false_alarm_rate)}"
        " false alarms per session,"
        f" {100 * curve.alpha:.2g} % for each verdict of the suite"
    )


def _row(point: Point) -> list[str]:
    others = [sum(point.outcomes.get(o, 0) for o in outcomes) for outcomes in _OTHERS]
    found = point.found
    return [
        str(point.percent),
        _size(point.slow_down) if point.slow_down else ABSENT,
        str(point.launches),
        f"{found.found} of {found.trials}" if found.trials else ABSENT,
        interval_text(found).removesuffix(" %") if found.trials else ABSENT,
        *map(str, others),
    ]


def _size(slow_down: SlowDown) -> str:
    low, high = slow_down.interval
    return f"{100 * slow_down.value:.1f} ± {50 * (high - low):.1f}"


def _notes(curve: PowerCurve) -> list[str]:
    notes = []
    below = [p.percent for p in curve.points if 0 < p.percent / 100 < curve.tolerance]
    if below:
        notes.append(
            f"A slow-down of up to {max(below)} % is below the tolerance of"
            f" {short_percent(curve.tolerance)}; the gate is not meant to find it."
        )
    notes.append(f"False alarms: {_alarms(curve.false_alarms)}{_unshown(curve.false_alarms)}.")
    notes.append(
        "The sessions of one run are minutes apart and share unslowed ones, so they are not fully"
        ' independent; "detects" of a pytest session with three or more stored ones includes how'
        " sessions differ."
    )
    return notes


def _alarms(alarms: FalseAlarms) -> str:
    metrics = ", ".join(f"{name} {count}" for name, count in alarms.by_metric.items())
    return (
        f"{alarms.share.found} of {alarms.share.trials} unslowed sessions raised a REGRESSION"
        + (f" ({metrics})" if metrics else "")
        + f", 95 % interval {interval_text(alarms.share)}; the promised"
        f" rate is {100 * alarms.promised:.2g} %"
    )


def _unshown(alarms: FalseAlarms) -> str:
    low, high = alarms.share.interval
    if not low <= alarms.promised < high:
        return ""
    needed = trials_to_show(alarms.promised)
    return f", which takes {needed:,} sessions without an alarm to show"


# The file ``selftest.json``, as it is read.


def read_power_curve(path: Path) -> PowerCurve | None:
    """Return the power curve of a self-test, or None if there is no such file.

    Raises ResultsError, which names the file, the field and the remedy.
    """
    found = _FORMAT.read_if_present(path)
    return None if found is None else found.curve


_FORMAT = VersionedJson(
    schema=SelftestFile,
    version=SCHEMA_VERSION,
    kind="the result of a self-test",
    error=ResultsError,
    remedy="remove it, or run ddp-perf selftest",
)
