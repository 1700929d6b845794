"""The gains of each technique: its cases against the base of the same ranks and batch.

A technique is one of the suite's `techniques`, a communication hook, or a swept value. Nothing here
is a verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.launch import first_structure
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.core.metric import PEAK_MEMORY, STEP_TIME
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.interval import PairedRatio, ratio_of_means, ratio_of_positive
from ddp_perf.stats.link import sent_bytes


class TechniqueGain(msgspec.Struct, frozen=True, kw_only=True):
    """A technique against its base. Step figures are those of as many samples as a base step has.

    None: it was not measured, or the base has none of it.
    """

    technique: str
    case_id: str
    pairs: int  # rounds with a launch of both
    speedup: PairedRatio | None  # of the samples per second, at the level of the step
    communication_s: float | None  # what communication adds to a step; median over launches
    communication: PairedRatio | None  # the same ÷ that of the base
    sent_bytes: float | None  # by a rank in a step
    sent_ratio: float | None
    peak_memory: float  # bytes, of a rank; median over launches
    memory: PairedRatio | None  # ÷ that of the base


class GainTable(msgspec.Struct, frozen=True, kw_only=True):
    """All techniques that have one base."""

    suite: str
    base: str  # its id
    ranks: int
    communication_s: float | None
    sent_bytes: float | None
    peak_memory: float
    gains: tuple[TechniqueGain, ...]


def gains_of(result: SuiteResult) -> list[GainTable]:
    """Return a table for each base that has techniques, in the order of the suite."""
    techniques: dict[str, list[Case]] = {}
    for case_id, measurement in result.measurements.items():
        base = measurement.case.base
        if base is not None and result.summaries.get(base) and result.summaries.get(case_id):
            techniques.setdefault(base, []).append(measurement.case)
    return [_table(result, base, techniques[base]) for base in techniques]


def _table(result: SuiteResult, base_id: str, cases: Sequence[Case]) -> GainTable:
    base = result.measurements[base_id].case
    rows = result.summaries[base_id]
    return GainTable(
        suite=result.suite,
        base=base_id,
        ranks=base.world_size,
        communication_s=_median(_communication_s, rows),
        sent_bytes=_sent_bytes(result, base),
        peak_memory=statistics.median(row.values[PEAK_MEMORY.name] for row in rows),
        gains=tuple(_gain(result, case, base) for case in cases),
    )


def _gain(result: SuiteResult, case: Case, base: Case) -> TechniqueGain:
    own, rows = result.summaries[case.id], result.summaries[base.id]
    share = base.samples_per_step / case.samples_per_step  # of its step, for the base's samples
    communication_s = _median(_communication_s, own)
    sent, base_sent = _sent_bytes(result, case), _sent_bytes(result, base)
    return TechniqueGain(
        technique=case.technique or case.id,
        case_id=case.id,
        pairs=len(_paired(own, rows)),
        speedup=ratio_of_positive(*_pairs(_steps_per_s, own, rows, 1 / share)),
        communication_s=None if communication_s is None else share * communication_s,
        communication=ratio_of_means(*_pairs(_communication_s, own, rows, share)),
        sent_bytes=None if sent is None else share * sent,
        sent_ratio=share * sent / base_sent if sent is not None and base_sent else None,
        peak_memory=statistics.median(row.values[PEAK_MEMORY.name] for row in own),
        memory=ratio_of_positive(*_pairs(_peak_memory, own, rows, 1.0)),
    )


_Figure = Callable[[LaunchSummary], float | None]


def _steps_per_s(row: LaunchSummary) -> float:
    return 1 / row.values[STEP_TIME.name]


def _peak_memory(row: LaunchSummary) -> float:
    return row.values[PEAK_MEMORY.name]


def _is_alone(step: Decomposition) -> bool:
    return len(step.ranks) == 1 and step.communication_s is None


def _communication_s(row: LaunchSummary) -> float | None:
    """Return what communication adds to a step: exposed, and what it slows the backward by."""
    step = row.decomposition
    if step is None or not step.sees_communication or _is_alone(step):
        return None
    return step.terms["exposed"] + step.terms["interference"]


def _pairs(
    figure: _Figure, own: Sequence[LaunchSummary], base: Sequence[LaunchSummary], share: float
) -> tuple[list[float], list[float]]:
    """Return the figures of the technique, times ``share``, and those of the base."""
    pairs = [(figure(one), figure(other)) for one, other in _paired(own, base)]
    known = [(a * share, b) for a, b in pairs if a is not None and b is not None]
    return [a for a, _ in known], [b for _, b in known]


def _paired(
    own: Sequence[LaunchSummary], base: Sequence[LaunchSummary]
) -> list[tuple[LaunchSummary, LaunchSummary]]:
    beside = {row.turn: row for row in base}
    return [(row, beside[row.turn]) for row in own if row.turn in beside]


def _median(figure: _Figure, rows: Sequence[LaunchSummary]) -> float | None:
    known = [value for value in map(figure, rows) if value is not None]
    return statistics.median(known) if known else None


def _sent_bytes(result: SuiteResult, case: Case) -> float | None:
    structure = first_structure(result.measurements[case.id].launches)
    return None if structure is None else sent_bytes(case, structure)
