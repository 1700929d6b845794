"""The clocks of GPUs under load beside those of the baseline: a slower clock is not the code's.

Somebody may lock a clock or lower a limit, and heat lowers it. A reason for a reduced clock that is
asserted costs nothing by itself: a warm card has it in every session, at the clock of its baseline.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ddp_perf.core.gpu import CLOCKS, HEAT, POWER_CAP, ClockName, Throttle
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.session import Session
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.machine_history import MachineHistory

_SAME = 0.02  # clocks under load that differ by less: readings vary by as much
_HALF = 0.5  # of a slow-down: what explains less of it is no cause
_TITLES: dict[ClockName, str] = {"sm_clock_mhz": "GPU", "memory_clock_mhz": "GPU memory"}
_SLOWER = (Outcome.REGRESSION, Outcome.SUSPECT)


class ClockChange(NamedTuple):
    """A clock that differs from that of the baseline: the medians over launches, in MHz."""

    name: ClockName
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before

    def __str__(self) -> str:
        return f"{_TITLES[self.name]} clock {self.after:,.0f} MHz, baseline {self.before:,.0f} MHz"


def clock_changes(session: Session, before: Sequence[Session]) -> list[ClockChange]:
    """Return the clocks that changed since ``before``, as far as both sides have them."""
    found = []
    for name in CLOCKS:
        now, then = session.values(name), [one for old in before for one in old.values(name)]
        if now and then:
            found.append(ClockChange(name, statistics.median(then), statistics.median(now)))
    return [change for change in found if abs(change.ratio - 1) > _SAME]


def as_conditions(changes: Sequence[ClockChange]) -> tuple[str, ...]:
    """Return the changes in the form of other changed conditions."""
    return tuple(
        f"{_TITLES[one.name]} clock under load {one.before:,.0f} → {one.after:,.0f} MHz"
        for one in changes
    )


def with_clocks(
    findings: Sequence[Finding],
    measurement: Measurement,
    session: Session,
    history: MachineHistory,
) -> list[Finding]:
    """Add changed clocks to findings, which are INVALID if they explain why the step is slower.

    A step takes at most as much longer as a clock is slower. What is left of a REGRESSION beyond
    that is the code's, and so is a power limit that the ranks reach by themselves: then it gets a
    remark. A clock does not explain a scaling cost: the step of one rank has the same clock.
    """
    changes = clock_changes(session, history.of(measurement.case.id, STEP_TIME.name).at_level)
    return [_with_clocks(one, measurement, changes) if changes else one for one in findings]


def _with_clocks(
    finding: Finding, measurement: Measurement, changes: Sequence[ClockChange]
) -> Finding:
    finding = msgspec.structs.replace(finding, changed=(*finding.changed, *as_conditions(changes)))
    verdict, lowest = finding.verdict, min(changes, key=lambda change: change.ratio)
    is_slower = verdict.outcome in _SLOWER and finding.metric == STEP_TIME.name
    if not is_slower or verdict.ratio is None or finding.tolerance is None or lowest.ratio >= 1:
        return finding
    what = f"{lowest}: {_cause(lowest, measurement.launches)}"
    is_enough = 1 / lowest.ratio - 1 >= _HALF * (verdict.ratio - 1)
    explains = is_enough and verdict.ratio * lowest.ratio < 1 + finding.tolerance
    if not explains or _reach_their_limit(measurement.launches):
        verdict = msgspec.structs.replace(verdict, reason=f"{verdict.reason}. {what}")
        return msgspec.structs.replace(finding, verdict=verdict)
    what += "; if this clock is meant to stay, accept it as the new level"
    reason = f"{what}; by the figures alone: {verdict.outcome.value}: {verdict.reason}"
    verdict = msgspec.structs.replace(
        verdict, outcome=Outcome.INVALID, reason=reason, more_launches=None, likely_launches=None
    )
    return msgspec.structs.replace(finding, verdict=verdict, disturbance=what)


def _cause(change: ClockChange, launches: Sequence[LaunchResult]) -> str:
    if change.name == "memory_clock_mhz":
        return "somebody locked it (nvidia-smi -rmc)"
    if _mostly(launches, HEAT):
        return "heat holds it down (cool it)"
    if _reach_their_limit(launches):
        return "the ranks reach the power limit, which is a part of the step's cost"
    return "somebody locked it (nvidia-smi -rgc) or the card is capped (-q -d PERFORMANCE)"


def _reach_their_limit(launches: Sequence[LaunchResult]) -> bool:
    """Return whether power alone limits the clock. Another limit would be another machine."""
    return _mostly(launches, {POWER_CAP}) and not _mostly(launches, HEAT)


def _mostly(launches: Sequence[LaunchResult], reasons: frozenset[Throttle] | set[Throttle]) -> bool:
    """Return whether one of the reasons reduced a GPU's clock in half of the launches or more."""
    found = [
        any(
            rank.load is not None and not reasons.isdisjoint(rank.load.throttle or ())
            for rank in launch.ranks
        )
        for launch in launches
    ]
    return 2 * sum(found) >= len(found)
