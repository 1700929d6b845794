"""A simulated machine, for tests that need launches of known spread."""

from __future__ import annotations

import numpy as np

Session = list[list[float]]


def simulated_sessions(
    count: int,
    *,
    seed: int,
    launches: int = 5,
    values: int = 1,
    session: float = 0.005,
    launch: float = 0.005,
    value: float = 0.0,
    slow_share: float = 0.0,
    slow: float = 1.4,
) -> list[Session]:
    """Return ``count`` sessions of launches × values; the three sds are on the log scale."""
    random = np.random.default_rng(seed)
    level = random.normal(0, session, (count, 1, 1)) + random.normal(
        0, launch, (count, launches, 1)
    )
    level = level + np.log(slow) * (random.random((count, launches, 1)) < slow_share)
    return np.exp(level + random.normal(0, value, (count, launches, values))).tolist()


def scaled(session: Session, factor: float) -> Session:
    return [[value * factor for value in launch] for launch in session]
