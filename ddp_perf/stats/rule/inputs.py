"""Input of the judge: options in their range, and values that a measurement can give."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.level import launch_level

Launches = Sequence[Sequence[float]]  # launches × values of one session
Figures = Sequence[float]  # one figure for each launch of one session


def check_arguments(
    tolerance: float,
    alpha: float,
    reference: int | None,
    prior: SessionPrior | None,
    looks: Sequence[int],
    session_levels: Sequence[int],
    sessions: int,
) -> None:
    """Raise ValueError, which names the option, if one is out of its range."""
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must lie between 0 and 1 (0.02 is 2 %), not {tolerance!r}")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha must lie between 0 and 0.5, not {alpha!r}")
    if reference is not None and reference < 1:
        raise ValueError(f"reference must be at least one session, not {reference!r}")
    if any(later <= look for look, later in itertools.pairwise([0, *looks])):
        raise ValueError(f"looks (numbers of launches) must rise, not {list(looks)!r}")
    if session_levels and len(session_levels) != sessions:
        raise ValueError(
            f"session_levels must have the {sessions} sessions of the baseline,"
            f" not {len(session_levels)}"
        )
    if prior is not None:
        if not (math.isfinite(prior.sd) and prior.sd >= 0):
            raise ValueError(f"a prior's sd must be finite and not negative, not {prior.sd!r}")
        if not prior.degrees_of_freedom >= 0:
            raise ValueError(f"a prior's df must not be negative, not {prior.degrees_of_freedom!r}")


def launch_levels(launches: Launches) -> list[float]:
    """Return one figure for each launch: its level.

    A value that no measurement gives (NaN, infinite, zero or negative) is the figure of its
    launch, so that the judge sees it. Raises ValueError for a launch without a value.
    """
    return [_figure(launch, launch_level) for launch in launches]


def launch_medians(launches: Launches) -> list[float]:
    """Return the median of each launch, and treat its values as `launch_levels` does."""
    return [_figure(launch, statistics.median) for launch in launches]


def first_empty_launch(sessions: Sequence[tuple[str, Launches]]) -> str | None:
    """Return a sentence on the first launch without a value, or None if there is none.

    ``sessions`` are pairs of a name, for the sentence, and its launches.
    """
    for name, launches in sessions:
        for number, launch in enumerate(launches, start=1):
            if not len(launch):
                return f"launch {number} of {name} has no value"
    return None


def first_invalid_figure(sessions: Sequence[tuple[str, Figures]]) -> str | None:
    """Return why these sessions cannot be judged, in one sentence, or None if they can.

    ``sessions`` are pairs of a name, for the sentence, and the figures of its launches.
    """
    for name, figures in sessions:
        if not len(figures):
            return f"{name} has no launch"
        if math.isfinite(sum(figures)) and min(figures) > 0:
            continue  # the quick way; NaN and infinity show in the sum
        for number, value in enumerate(figures, start=1):
            if not _is_measurable(value):
                return (
                    f"launch {number} of {name} has the value {value};"
                    " a value must be finite and positive"
                )
    return None


def _figure(launch: Sequence[float], figure: Callable[[Sequence[float]], float]) -> float:
    if not (math.isfinite(sum(launch)) and min(launch) > 0):  # else no value needs a look
        for value in launch:
            if not _is_measurable(value):
                return float(value)
    return float(figure(launch))


def _is_measurable(value: float) -> bool:
    return 0 < value < math.inf  # False for NaN as well
