"""The noise of each planned case, measured by a baseline or stated by the file of the fleet."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.metric_history import LEAST_SESSIONS
from ddp_perf.errors import ConfigError, nearest_or_all
from ddp_perf.plan.fleet_file import FleetCase
from ddp_perf.stats.fleet import level_share
from ddp_perf.stats.rule.modes import levels_of
from ddp_perf.stats.rule.reference import groups_of, stored_levels
from ddp_perf.stats.rule.session_variance import session_spread

Source = Literal["measured", "stated", "modelled"]


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """The spread of a case's step time where nothing changed: sds of logs, with their sources."""

    launch: float
    session: float
    node: float
    visit: float
    sources: dict[str, Source]
    note: str = ""  # what was measured, and where

    def of_visit(self, launches: int) -> float:
        """Return the variance of a node's level from session to session, its launches included."""
        return self.visit**2 + self.launch**2 * level_share(launches)


def noise_of(case: FleetCase) -> Noise:
    """Return the noise of a case. Raises ConfigError if the baseline does not show it."""
    given = case.noise
    sources: dict[str, Source] = dict.fromkeys(("launch", "session", "node", "visit"), "stated")
    launch, session, note = given.launch, given.session, ""
    if case.baseline is not None and case.case is not None:
        measured = _measured(Path(case.baseline), case.case, case.tolerance)
        note = f"{case.baseline}, {case.case}"
        if launch is None:
            launch, sources["launch"] = measured[0], "measured"
        if session is None:
            session, sources["session"] = measured[1], "measured"
    return Noise(
        launch=launch or 0.0,
        session=session or 0.0,
        node=given.node,
        visit=given.visit,
        sources=sources,
        note=note,
    )


def _measured(path: Path, case_id: str, tolerance: float) -> tuple[float, float]:
    """Return the sds of launches and of sessions that a baseline shows."""
    store = BaselineStore(path.parent)
    store.existing_path(path.stem)
    cases = store.load(path.stem).cases
    if case_id not in cases:
        raise ConfigError(f"{path}: there is no case {case_id}{nearest_or_all(case_id, cases)}")
    history = cases[case_id].history(STEP_TIME.name)
    figures = [session.values(STEP_TIME.name) for session in history.informing]
    if len(figures) - len(set(history.levels)) < LEAST_SESSIONS - 1:
        raise ConfigError(
            f"{path}: {case_id} has {len(figures)} sessions, too few to show how they differ; state"
            " noise.launch and noise.session"
        )
    levels = levels_of(figures, tolerance)
    groups = groups_of(history.levels, len(figures))
    stored, _ = stored_levels(levels, None, groups, None, kept=np.ones(len(figures), dtype=bool))
    spread = session_spread(*stored.residuals())
    session = max(0.0, spread.variance - stored.launch_noise)
    return math.sqrt(levels.launch_variance), math.sqrt(session)
