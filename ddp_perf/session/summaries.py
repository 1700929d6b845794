"""Launches in figures: as reports show them, and as baselines store them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ddp_perf.core.baseline import CONTROL, Session
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.stats.summary import summarise_all


def summaries_of(measurements: Mapping[str, Measurement]) -> dict[str, list[LaunchSummary]]:
    """Every launch in figures, by case id; scaling where the one-rank leg was measured too."""
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
    """A case's launches of this session, in the form that baselines are stored in."""
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
    """To significant digits: more is noise, and would make a baseline's diff unreadable."""
    return {name: _to_digits(value, digits) for name, value in row.items()}


def _to_digits(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
