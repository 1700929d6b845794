"""The judgement of one metric of a session: it collects the inputs of the rule."""

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
    """Judge a metric by ``before``, the stored sessions that have it, oldest first."""
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
    """Return the tolerance of a gated metric."""
    tolerance = case.tolerances.of(metric)
    assert tolerance is not None  # it is gated
    return tolerance


def prior_of(
    baseline: Baseline, metric: str, *, now: Environment, tolerance: float
) -> SessionPrior | None:
    """Estimate the between-session spread from all stored cases of this machine."""
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
    """Return the control of each session, or None if the control does not apply to the metric.

    It does not apply after a change of software, or before there are enough sessions to show
    whether the case follows it: until then it would only add noise.
    """
    if not is_controlled(metric) or len(sessions) < LEAST_SESSIONS:
        return None
    if not all(same_software(session.environment, now) for session in sessions):
        return None
    return [session.values(CONTROL) for session in sessions]
