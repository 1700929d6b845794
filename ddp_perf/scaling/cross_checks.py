"""The laws that stand beside the α-β model: through the same points, and deciding nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.scaling.fit import Band, fit_laws
from ddp_perf.scaling.laws import (
    Law,
    amdahl,
    amdahl_limit,
    karp_flatt,
    universal,
    universal_peak,
)
from ddp_perf.scaling.points import ScalingPoint
from ddp_perf.stats.robust import Floats


class CrossCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What one of them says."""

    law: str
    parameters: dict[str, Band]
    implied: str  # what its limit is
    limit: Band  # infinite where the interval reaches no limit
    step_s: dict[int, Band]


def cross_checks(
    points: Sequence[ScalingPoint], sizes: Sequence[int]
) -> tuple[CrossCheck, CrossCheck]:
    """Amdahl's law and the universal one, with their steps at these sizes."""
    return _amdahl(points, sizes), _universal(points, sizes)


def serial_fractions(points: Sequence[ScalingPoint]) -> dict[int, float]:
    """Karp–Flatt by world size; empty without a step of one rank."""
    singles = [point.step_s for point in points if point.world_size == 1]
    if not singles:
        return {}
    return {
        p.world_size: karp_flatt(p.world_size * singles[0] / p.step_s, p.world_size)
        for p in points
        if p.world_size > 1
    }


def _amdahl(points: Sequence[ScalingPoint], sizes: Sequence[int]) -> CrossCheck:
    fit = fit_laws([amdahl()], points)
    serial = fit.band(lambda law, terms: terms[1] / terms[0])
    return CrossCheck(
        law="Amdahl",
        parameters={"serial fraction": serial},
        implied="speedup never over",
        limit=Band(
            value=amdahl_limit(serial.value),
            low=amdahl_limit(serial.high),
            high=amdahl_limit(serial.low),
        ),
        step_s={ranks: fit.predict(ranks) for ranks in sizes},
    )


def _universal(points: Sequence[ScalingPoint], sizes: Sequence[int]) -> CrossCheck:
    fit = fit_laws([universal()], points)

    def peaks(law: Law, terms: Floats) -> Floats:
        return np.array([universal_peak(*pair) for pair in (terms[1:] / terms[0]).T])

    return CrossCheck(
        law="USL",
        parameters={
            "contention": fit.band(lambda law, terms: terms[1] / terms[0]),
            "coherency": fit.band(lambda law, terms: terms[2] / terms[0]),
        },
        implied="throughput highest at ranks",
        limit=fit.band(peaks),
        step_s={ranks: fit.predict(ranks) for ranks in sizes},
    )
