"""Simulated machines and recorded sessions, in which nothing changes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RECORDED = Path(__file__).parent / "data" / "ddp_gloo_2core.json"
LAUNCHES, VALUES, SESSIONS = 5, 50, 8
CONTROL_VALUES = 12


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Values of sessions × launches, the current session last, and those of the control."""

    sessions: Floats
    control: Floats | None = None


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of machine. ``draw`` makes a trial from a generator."""

    name: str
    draw: Callable[[np.random.Generator], Trial]
    bounded: bool = True  # whether our false-alarm bound is claimed for it


def machine(
    random: np.random.Generator,
    *,
    sessions: int = SESSIONS,
    session: float = 0.005,
    launch: float = 0.005,
    value: float = 0.02,
    spikes: float = 0.02,
    levels: Floats | None = None,
) -> Floats:
    """Draw log-normal sessions, launches and values. A share of the values is up to 50 % longer.

    ``levels``: the logs of the sessions where they are not independent; else their sd is
    ``session``.
    """
    if levels is None:
        levels = random.normal(0, session, sessions + 1)
    shape = (sessions + 1, LAUNCHES, VALUES)
    logs = levels[:, None, None] + random.normal(0, launch, (*shape[:2], 1))
    logs = logs + random.normal(0, value, shape)
    stalls = random.uniform(0.1, 0.5, shape) * (random.random(shape) < spikes)
    return np.exp(logs) * (1 + stalls)


def quiet(random: np.random.Generator) -> Trial:
    return Trial(sessions=machine(random))


def skewed(random: np.random.Generator) -> Trial:
    """Draw launches and values with exponential tails. One value in twenty is a spike."""
    sessions = machine(random, launch=0.001, value=0.005, spikes=0.05)
    launches = random.exponential(0.006, (*sessions.shape[:2], 1))
    return Trial(sessions=sessions * np.exp(launches + random.exponential(0.02, sessions.shape)))


def autocorrelated(random: np.random.Generator) -> Trial:
    """Draw sessions with an sd of 0.5 % and an autocorrelation of 0.6."""
    levels = [random.normal()]
    for _ in range(SESSIONS):
        levels.append(0.6 * levels[-1] + 0.8 * random.normal())
    return Trial(sessions=machine(random, levels=0.005 * np.array(levels)))


def drifting(random: np.random.Generator) -> Trial:
    """Draw a machine whose sessions have an sd of 6 %, like those of its control."""
    moves = random.normal(0, 0.06, SESSIONS + 1)
    control = np.exp(
        moves[:, None, None]
        + random.normal(0, 0.005, (SESSIONS + 1, LAUNCHES, 1))
        + random.normal(0, 0.01, (SESSIONS + 1, LAUNCHES, CONTROL_VALUES))
    )
    levels = moves + random.normal(0, 0.005, SESSIONS + 1)
    return Trial(sessions=machine(random, levels=levels), control=control)


def noisy(random: np.random.Generator) -> Trial:
    """Draw sessions, launches and values of 1, 2 and 5 % sd, and an unrelated control."""
    control = np.exp(
        random.normal(0, 0.03, (SESSIONS + 1, 1, 1))
        + random.normal(0, 0.05, (SESSIONS + 1, LAUNCHES, CONTROL_VALUES))
    )
    sessions = machine(random, session=0.01, launch=0.02, value=0.05)
    return Trial(sessions=sessions, control=control)


def two_modes(random: np.random.Generator) -> Trial:
    """Draw launches of which three in ten are 40 % slower."""
    sessions = machine(random)
    slow = random.random((*sessions.shape[:2], 1)) < 0.3
    return Trial(sessions=sessions * np.where(slow, 1.4, 1.0))


def mixed(random: np.random.Generator) -> Trial:
    """Draw 3 to 12 sessions. Each sd is drawn anew between 0.2 and 3 %."""
    session, launch, value = np.exp(random.uniform(np.log(0.002), np.log(0.03), 3))
    sessions = int(random.integers(3, 13))
    return Trial(
        sessions=machine(random, sessions=sessions, session=session, launch=launch, value=value)
    )


@functools.cache
def _recorded() -> dict[str, Trial]:
    """Return all sessions of each recorded case, in order."""
    cases = json.loads(RECORDED.read_text())["cases"]
    return {
        name: Trial(
            sessions=np.array([[launch["step_ms"] for launch in session] for session in sessions]),
            control=np.array(
                [[launch["control_ms"] for launch in session] for session in sessions]
            ),
        )
        for name, sessions in cases.items()
    }


def recorded(random: np.random.Generator, case: str) -> Trial:
    """Draw nine of the recorded sessions. One is judged against the eight others."""
    trial = _recorded()[case]
    chosen = random.choice(len(trial.sessions), SESSIONS + 1, replace=False)
    assert trial.control is not None
    return Trial(sessions=trial.sessions[chosen], control=trial.control[chosen])


FAMILIES = (
    Family(name="quiet", draw=quiet),
    Family(name="skewed, spikes", draw=skewed),
    Family(name="autocorrelated sessions", draw=autocorrelated),
    Family(name="drifts with control", draw=drifting),
    Family(name="noisy", draw=noisy),
    Family(name="launches in two modes", draw=two_modes),
    Family(name="mixed, 3-12 sessions", draw=mixed),
    # Nine of eighteen sessions over and over are no independent trials: shown, not held to a bound.
    Family(name="recorded, 1 rank", draw=functools.partial(recorded, case="1 rank"), bounded=False),
    Family(
        name="recorded, 2 ranks", draw=functools.partial(recorded, case="2 ranks"), bounded=False
    ),
)
