"""The prior of a case: the spread of the machine's sessions, estimated from its other cases."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.core.metric_history import REFERENCE_SESSIONS
from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.inputs import Figures
from ddp_perf.stats.rule.levels import levels_of, without_slow_sessions
from ddp_perf.stats.rule.reference import groups_of, stored_levels
from ddp_perf.stats.rule.session_variance import (
    session_spread,
    sessions_alone,
    squeeze_session_variance,
)

_MOVE_LEVEL = 0.001  # of a move within the reference


class CaseSessions(msgspec.Struct, frozen=True, kw_only=True):
    """A case's stored sessions (sessions × launches) and those of its control, if any."""

    sessions: Sequence[Figures]
    days: Sequence[str]  # of each session; sessions of one day share the machine's state
    control: Sequence[Figures] | None = None
    session_levels: Sequence[int] = ()
    tolerance: float


class CaseSpread(msgspec.Struct, frozen=True, kw_only=True):
    """The spread of one case's sessions."""

    variance: float
    degrees_of_freedom: float
    launch_noise: float  # the launches' part of the variance
    residuals: dict[str, float]  # by day


class MachineSpread:
    """The spread of every case of a machine, and how alike the cases move from day to day."""

    def __init__(self, cases: Sequence[CaseSessions]) -> None:
        self._spreads = [_case_spread(case) if len(case.sessions) > 1 else None for case in cases]
        self._shared = shared_variance([s.residuals for s in self._spreads if s is not None])

    def prior(self, case: int | None) -> SessionPrior | None:
        """Return the prior of the case at this index, from the other cases; None without any.

        ``case`` None is a case that is not among them.

        A plug-in prior counts the degrees of freedom of all cases, as if each had sessions of its
        own. They share the sessions: the variance of n cases whose residuals have the correlation
        ρ is known no better than from ``Σ df ÷ (1 + (n − 1) ρ²)`` degrees of freedom. What the
        case itself brings is subtracted from them.
        """
        own = None if case is None else self._spreads[case]
        others = [
            spread
            for i, spread in enumerate(self._spreads)
            if spread is not None and spread.degrees_of_freedom > 0 and i != case
        ]
        if not others:
            return None
        prior = squeeze_session_variance(
            [s.variance for s in others], [s.degrees_of_freedom for s in others]
        )
        prior = sessions_alone(prior, float(np.mean([s.launch_noise for s in others])))
        known = [s.degrees_of_freedom for s in ([*others, own] if own else others)]
        carried = sum(known) / (1 + (len(known) - 1) * self._shared)
        own_df = own.degrees_of_freedom if own else 0.0
        at_most = max(0.0, carried - own_df)
        return msgspec.structs.replace(
            prior, degrees_of_freedom=min(prior.degrees_of_freedom, at_most)
        )


def shared_variance(residuals: Sequence[dict[str, float]]) -> float:
    """Return ρ², the share of the variance that two cases have in common, between 0 and 1.

    With C the correlations of the residuals over ν days, ``(ν mean(C²) − 1) ÷ (ν − 1)`` is
    unbiased: unrelated cases have C² = 1 ÷ ν on average. With one day nothing is known, and it
    is 1.
    """
    if len(residuals) < 2:
        return 1.0
    days = sorted({day for case in residuals for day in case})
    rows = np.array([[case.get(day, 0.0) for day in days] for case in residuals])
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows[lengths > 0] / lengths[lengths > 0, None]
    freedom = len(days) - 1
    if len(rows) < 2 or freedom < 2:
        return 1.0
    squares = np.square(rows @ rows.T)
    pairs = len(rows) * (len(rows) - 1)
    mean = (float(squares.sum()) - len(rows)) / pairs
    return min(1.0, max(0.0, (freedom * mean - 1) / (freedom - 1)))


def _case_spread(case: CaseSessions) -> CaseSpread:
    levels = levels_of(case.sessions, case.tolerance)
    kept = without_slow_sessions(levels, len(case.sessions))
    control = levels_of(case.control, case.tolerance).fast if case.control is not None else None
    groups = groups_of(case.session_levels, len(case.sessions))
    stored, _ = stored_levels(levels, control, groups, None, kept=kept)
    move = stored.find_move(
        REFERENCE_SESSIONS, smallest=math.log1p(case.tolerance), level=_MOVE_LEVEL
    )
    if move is not None:
        stored = stored.split(move.after)
    residual, df = stored.residuals()
    spread = session_spread(residual, df)
    return CaseSpread(
        variance=spread.variance,
        degrees_of_freedom=spread.degrees_of_freedom,
        launch_noise=stored.launch_noise,
        residuals=_by_day(case.days, kept.tolist(), residual),
    )


def _by_day(days: Sequence[str], kept: Sequence[bool], residual: Floats) -> dict[str, float]:
    used = [day for day, is_kept in zip(days, kept, strict=True) if is_kept]
    return dict(zip(used, residual.tolist(), strict=True))
