"""What the judge accepts: options in range, and values that a measurement can give."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.rule.modes import Floats, Levels, session_levels

Launches = Sequence[Sequence[float]]


def check_arguments(
    tolerance: float,
    alpha: float,
    reference: int | None,
    prior: SessionPrior | None,
    looks: Sequence[int],
) -> None:
    """Raise ValueError, naming the option, where one is out of its range."""
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must lie between 0 and 1 (0.02 is 2 %), not {tolerance!r}")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha must lie between 0 and 0.5, not {alpha!r}")
    if reference is not None and reference < 1:
        raise ValueError(f"at least one session must set the level, not reference={reference!r}")
    if any(later <= look for look, later in itertools.pairwise([0, *looks])):
        raise ValueError(f"launches must rise from look to look, not looks={list(looks)!r}")
    if prior is not None:
        if not (math.isfinite(prior.sd) and prior.sd >= 0):
            raise ValueError(f"a prior's sd must be finite and not negative, not {prior.sd!r}")
        if not prior.degrees_of_freedom >= 0:
            raise ValueError(f"a prior's df must not be negative, not {prior.degrees_of_freedom!r}")


def first_invalid_launch(launches: Launches, name: str) -> str | None:
    """Why these launches cannot be judged, in one sentence; None where they can."""
    if not len(launches):
        return f"{name} has no launch"
    for number, launch in enumerate(launches, start=1):
        if not len(launch):
            return f"launch {number} of {name} has no value"
        if math.isfinite(sum(launch)) and min(launch) > 0:
            continue  # the quick way; NaN and infinity show in the sum
        for value in launch:
            if not 0 < value < math.inf:  # true of NaN as well
                return f"launch {number} of {name} holds {value}; a value is finite and positive"
    return None


def first_problem_of_sessions(sessions: Sequence[Launches], name: str) -> str | None:
    """As `first_problem`, over all sessions."""
    for number, session in enumerate(sessions, start=1):
        problem = first_invalid_launch(session, f"{name} {number}")
        if problem:
            return problem
    return None


def log_medians(launches: Launches) -> Floats:
    """A launch in one figure: the log of its median, which no stray step moves."""
    return np.log([_median(launch) for launch in launches])


def levels_of(sessions: Sequence[Launches], tolerance: float) -> Levels:
    """The sessions' levels; modes nearer than the tolerance make no difference and are one."""
    logs = [log_medians(session) for session in sessions]
    return session_levels(logs, smallest_gap=math.log1p(tolerance))


def _median(values: Sequence[float]) -> float:
    """``numpy.median``'s result; sorting fifty floats costs a tenth of it."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return (float(ordered[middle - 1]) + float(ordered[middle])) / 2
