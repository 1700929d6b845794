"""The prior of a machine: the spread of its sessions, estimated from all of its cases."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.rule.control import fit_slope
from ddp_perf.stats.rule.inputs import Figures
from ddp_perf.stats.rule.modes import levels_of, without_slow_sessions
from ddp_perf.stats.rule.session_variance import (
    detrend,
    session_spread,
    sessions_alone,
    squeeze_session_variance,
)


class CaseSessions(msgspec.Struct, frozen=True, kw_only=True):
    """A case's stored sessions (sessions × launches) and those of its control, if any."""

    sessions: Sequence[Figures]
    control: Sequence[Figures] | None = None
    tolerance: float


def machine_prior(cases: Sequence[CaseSessions]) -> SessionPrior | None:
    """Return the prior of `judge_figures` from baselines, or None if no case has two sessions.

    The variances of the sessions' levels are squeezed as the judge uses them: without slow
    launches, without a trend, and without what the control explains. They contain the noise of
    the launches, which the judge adds itself, so its mean over the cases is subtracted.
    """
    variances, dfs, noises = [], [], []
    for case in cases:
        if len(case.sessions) < 2:
            continue
        variance, df, noise = _session_variance(case)
        variances.append(variance)
        dfs.append(df)
        noises.append(noise)
    if not variances:
        return None
    prior = squeeze_session_variance(variances, dfs)
    return sessions_alone(prior, float(np.mean(noises)))


def _session_variance(case: CaseSessions) -> tuple[float, float, float]:
    """Return the variance of a session's level, its degrees of freedom, and the launches' part."""
    levels = levels_of(case.sessions, case.tolerance)
    kept = without_slow_sessions(levels, len(case.sessions))
    residual = levels.fast[kept] - levels.fast[kept].mean()
    if case.control is not None:
        control = levels_of(case.control, case.tolerance).fast[kept]
        residual = fit_slope(residual, control - control.mean()).residual
    residual, df = detrend(residual)
    noise = levels.launch_variance * float(np.mean(1 / levels.fast_launches[kept]))
    spread = session_spread(residual, df)
    return spread.variance, spread.degrees_of_freedom, noise
