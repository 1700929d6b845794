"""Amdahl's law beside the α-β model: fitted to the same points, and without a vote."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ddp_perf.scaling.fit import Band, fit_laws
from ddp_perf.scaling.laws import amdahl, amdahl_limit
from ddp_perf.scaling.points import ScalingPoint


class CrossCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one further law: its parameters, its limit and its steps."""

    law: str
    parameters: dict[str, Band]
    implied: str  # the meaning of the limit, in words
    limit: Band  # infinite if the interval reaches no limit
    step_s: dict[int, Band]  # by world size


def amdahl_check(
    points: Sequence[ScalingPoint], sizes: Sequence[int], *, strong: bool = False
) -> CrossCheck:
    """Fit Amdahl's law to the points and return its serial fraction, limit and steps at `sizes`.

    Raises ValueError, with the reason, if the points cannot be fitted.
    """
    fit = fit_laws([amdahl(strong=strong)], points)
    serial = fit.band(lambda law, terms: terms[3 if law.strong else 1] / terms[0])
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
