"""Judge one metric of a session against the sessions before it: collect what the rule needs."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.baseline import (
    CONTROL,
    LEAST_SESSIONS,
    REFERENCE_SESSIONS,
    Baseline,
    Session,
)
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.metric import is_controlled
from ddp_perf.core.verdict import SessionPrior, Verdict
from ddp_perf.session.gate.comparability import same_software
from ddp_perf.stats.rule.judge import judge_figures
from ddp_perf.stats.rule.machine_prior import CaseSessions, machine_prior


def judge_session(
    metric: str,
    session: Session,
    before: Sequence[Session],
    *,
    tolerance: float,
    alpha: float,
    prior: SessionPrior | None,
    looks: Sequence[int] = (),
) -> Verdict:
    """``before``: the stored sessions that have this metric, oldest first."""
    control = _controls(before, metric, session.environment)
    return judge_figures(
        session.values(metric),
        [session.values(metric) for session in before],
        tolerance=tolerance,
        alpha=alpha,
        control=session.values(CONTROL) if control else None,
        baseline_control=control,
        reference=REFERENCE_SESSIONS,
        prior=prior,
        looks=looks,
    )


def tolerance_of(case: Case, metric: str) -> float:
    """Of a gated metric."""
    tolerance = case.tolerances.of(metric)
    assert tolerance is not None  # it is gated
    return tolerance


def prior_of(
    baseline: Baseline, metric: str, *, now: Environment, tolerance: float
) -> SessionPrior | None:
    """What all stored cases of this machine say of how its sessions differ."""
    stored = [
        case.sessions_with(metric) for case in baseline.cases.values() if case.source == "measured"
    ]
    return machine_prior(
        [
            CaseSessions(
                sessions=[session.values(metric) for session in sessions],
                control=_controls(sessions, metric, now),
                tolerance=tolerance,
            )
            for sessions in stored
        ]
    )


def _controls(
    sessions: Sequence[Session], metric: str, now: Environment
) -> list[list[float]] | None:
    """The control of each session; None where it may not speak for the machine. Nor before there
    are sessions enough to show whether the case follows it: until then it would add noise alone.
    """
    if not is_controlled(metric) or len(sessions) < LEAST_SESSIONS:
        return None
    if not all(same_software(session.environment, now) for session in sessions):
        return None
    return [session.values(CONTROL) for session in sessions]
