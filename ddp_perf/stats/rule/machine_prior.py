"""What all cases of a machine say together of its sessions: the prior for each of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.rule.control import fit_slope
from ddp_perf.stats.rule.inputs import Launches, levels_of
from ddp_perf.stats.rule.modes import without_slow_sessions
from ddp_perf.stats.rule.session_variance import (
    detrend,
    session_spread,
    sessions_alone,
    squeeze_session_variance,
)


class CaseSessions(msgspec.Struct, frozen=True, kw_only=True):
    """A case's stored sessions (sessions × launches × values) and its control's, if any."""

    sessions: Sequence[Launches]
    control: Sequence[Launches] | None = None
    tolerance: float


def machine_prior(cases: Sequence[CaseSessions]) -> SessionPrior | None:
    """The prior of `judge_launches`, from baselines alone; None where no case has two sessions.

    Squeezed are the variances of the sessions' levels as the judge sees them: without slow
    launches, trend and what the control explains. They hold the noise of the launches, which
    the judge adds by itself, so its mean over the cases is taken off the result.
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
    """Variance of a session's level, its degrees of freedom, and the launches' part of it."""
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
