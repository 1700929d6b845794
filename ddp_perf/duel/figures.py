"""The figures of both sides of a case: those of each launch, in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.duel.values import CaseDuel, SideName
from ddp_perf.stats.scaling import ideal_share
from ddp_perf.stats.summary import summarise


class PairFigures(NamedTuple):
    """The figures of the launches of a pair."""

    a: LaunchSummary
    b: LaunchSummary


def figures_of(case: CaseDuel, single: CaseDuel | None = None) -> list[PairFigures]:
    """Return the figures of each pair, in the order of measurement.

    ``single`` is the one-rank case of the same duel: a pair has an efficiency if the one-rank case
    was launched in the same block.
    """
    beside = {pair.block: pair for pair in single.pairs} if single is not None else {}
    figures = []
    for pair in case.pairs:
        alone = beside.get(pair.block)
        figures.append(
            PairFigures(
                _summary(case, "A", pair.a, single, alone.a if alone else None),
                _summary(case, "B", pair.b, single, alone.b if alone else None),
            )
        )
    return figures


def _summary(
    case: CaseDuel,
    side: SideName,
    launch: LaunchResult,
    single: CaseDuel | None,
    alone: LaunchResult | None,
) -> LaunchSummary:
    own = case.cases.of(side)
    ideal = _ideal(own, single.cases.of(side)) if single is not None else 1.0
    return summarise(launch, samples_per_step=own.samples_per_step, single=alone, ideal=ideal)


def _ideal(case: Case, single: Case) -> float:
    return ideal_share(
        world_size=case.world_size,
        samples=case.samples_per_step,
        single_samples=single.samples_per_step,
    )


def summaries_of_aa(case: CaseDuel) -> list[LaunchSummary]:
    """Return the figures of the launches of side A before the pairs."""
    return [_summary(case, "A", launch, None, None) for launch in case.aa]


def with_metric(figures: Sequence[PairFigures], metric: str) -> list[tuple[float, float]]:
    """Return the figures of both sides in each pair that has them on both."""
    return [
        (pair.a.values[metric], pair.b.values[metric])
        for pair in figures
        if metric in pair.a.values and metric in pair.b.values
    ]


def log_ratios(values: Sequence[tuple[float, float]]) -> list[float]:
    """Return the log of B ÷ A of each pair."""
    return [math.log(b / a) for a, b in values]
