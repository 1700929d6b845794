"""Summaries of launches: the form of reports, and the form of stored sessions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ddp_perf.core.baseline import CONTROL, Session
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.stats.summary import summarise_all


def summaries_of(measurements: Mapping[str, Measurement]) -> dict[str, list[LaunchSummary]]:
    """Summarise every launch, by case id; with scaling if the one-rank case was measured too."""
    summaries = {}
    for case_id, measurement in measurements.items():
        case = measurement.case
        single = measurements.get(case.single) if case.single else None
        summaries[case_id] = summarise_all(
            measurement.launches,
            samples_per_step=case.samples_per_step,
            singles=single.launches if single else (),
        )
    return summaries


def as_session(summaries: Sequence[LaunchSummary], environment: Environment, date: str) -> Session:
    """Return a case's launches of this session in the form of a stored session."""
    figures = [{**summary.values, CONTROL: summary.control_s} for summary in summaries]
    terms = [s.decomposition.figures() if s.decomposition else {} for s in summaries]
    overheads = [s.overhead_s for s in summaries if s.overhead_s is not None]
    return Session(
        date=date,
        environment=environment,
        launches=tuple(_rounded(row, 7) for row in figures),
        terms=tuple(_rounded(row, 4) for row in terms) if any(terms) else (),
        overhead_s=_to_digits(statistics.median(overheads), 4) if overheads else None,
    )


def _rounded(row: Mapping[str, float], digits: int) -> dict[str, float]:
    """Round to significant digits: more are noise, and make the diff of a baseline unreadable."""
    return {name: _to_digits(value, digits) for name, value in row.items()}


def _to_digits(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
