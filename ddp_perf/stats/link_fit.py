"""Fit the latency and bandwidth of a link to times over sizes, and compare two such fits.

Both are least squares on relative errors. Sizes span six orders of magnitude and times four, so
absolute errors would not determine the latency.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from ddp_perf.core.subject import CollectiveKind
from ddp_perf.stats.interval import upper_t
from ddp_perf.stats.link import Link, LinkFit, LinkPoint, LinkShift, Shift, ring_s
from ddp_perf.stats.robust import Floats

CONFIDENCE = 0.95
_LEAST_SIZES = 3  # two figures are fitted, and one residual must be left for the error
_NOISELESS = 1e-9  # least relative error: computed figures have none


def fit_link(points: Sequence[LinkPoint], *, kind: CollectiveKind, ranks: int) -> LinkFit | None:
    """Fit α and β of the ring model to any number of points for each size, such as one a launch.

    The median of each size counts, so a minority of disturbed launches has no effect. The intervals
    contain the scatter of the launches and the misfit of the model, by the residuals of the sizes.

    Returns None if the points do not determine both figures: fewer than 3 sizes, one rank, or an
    interval that contains zero. Raises ValueError for a time or size that is no positive number.
    """
    typical = _typical(points)
    if len(typical) < _LEAST_SIZES or ranks < 2:
        return None
    parts = np.array([_parts(kind, point.payload, ranks) for point in typical])
    fitted = _Relative(parts, np.array([point.seconds for point in typical]))
    (latency_s, byte_s), (low, high) = fitted.values, fitted.interval()
    if not (low > 0).all():
        return None
    return LinkFit(
        kind=kind,
        ranks=ranks,
        link=Link(latency_s=float(latency_s), bytes_per_s=float(1 / byte_s)),
        latency_s=(float(low[0]), float(high[0])),
        bytes_per_s=(float(1 / high[1]), float(1 / low[1])),
        misfit=fitted.misfit,
        points=tuple(typical),
    )


def compare_links(
    now: LinkFit, before: LinkFit, sessions: Sequence[LinkFit] = ()
) -> LinkShift | None:
    """Compare two fits: by how much did the latency and the time for a byte change?

    ``sessions`` are the fits of the single sessions that ``before`` contains. How they differ from
    it is the only sign of how far a link moves by itself. Returns None with fewer than 3 sizes in
    common, or if the fits are of different collectives.
    """
    ratios = _ratios(now, before)
    if ratios is None:
        return None
    earlier = [found for one in sessions if (found := _ratios(one, before)) is not None]
    latency, bandwidth = (
        Shift(ratio=ratio, sessions=(min(others), max(others)) if len(others) > 1 else None)
        for ratio, others in ((ratios[i], [found[i] for found in earlier]) for i in range(2))
    )
    return LinkShift(latency=latency, bandwidth=bandwidth)


def _ratios(now: LinkFit, before: LinkFit) -> tuple[float, float] | None:
    """Return the time of a message and of a byte, now ÷ before.

    For each size, the ratio of the times is the mean of both, weighted by the share of the time
    that each part had. So the misfit of the model, which is the same on both sides, cancels.
    """
    times = {point.payload: point.seconds for point in now.points}
    common = [point for point in before.points if point.payload in times]
    if (now.kind, now.ranks) != (before.kind, before.ranks) or len(common) < _LEAST_SIZES:
        return None
    parts = np.array([_parts(before.kind, point.payload, before.ranks) for point in common])
    modelled = parts * [before.link.latency_s, 1 / before.link.bytes_per_s]
    shares = modelled / modelled.sum(axis=1, keepdims=True)
    ratios = np.array([times[point.payload] / point.seconds for point in common])
    latency, byte = _Relative(shares, ratios).values
    return float(latency), float(byte)


class _Relative:
    """A least-squares fit on relative errors of ``parts`` (n × 2) · two values = ``totals`` (n)."""

    def __init__(self, parts: Floats, totals: Floats) -> None:
        relative = parts / totals[:, None]
        scale = np.linalg.norm(relative, axis=0)  # latency and bytes differ by ten magnitudes
        inverse = np.linalg.inv((relative / scale).T @ (relative / scale))
        self.values: Floats = inverse @ (relative / scale).sum(axis=0) / scale
        self._df = len(totals) - 2
        residuals = relative @ self.values - 1
        variance = max(float(residuals @ residuals) / self._df, _NOISELESS**2)
        self.misfit = math.sqrt(float(residuals @ residuals) / len(totals))
        self._errors: Floats = np.sqrt(variance * np.diag(inverse)) / scale

    def interval(self) -> tuple[Floats, Floats]:
        half = upper_t(self._df, (1 - CONFIDENCE) / 2) * self._errors
        return self.values - half, self.values + half


def _typical(points: Sequence[LinkPoint]) -> list[LinkPoint]:
    """Return the median point of each size, the smallest size first."""
    seconds: dict[int, list[float]] = {}
    for point in points:
        if not point.payload > 0 or not 0 < point.seconds < math.inf:
            raise ValueError(f"{point} is no time of a call")
        seconds.setdefault(point.payload, []).append(point.seconds)
    return [
        LinkPoint(payload=payload, seconds=statistics.median(seconds[payload]))
        for payload in sorted(seconds)
    ]


def _parts(kind: CollectiveKind, payload: int, ranks: int) -> tuple[float, float]:
    """Return the number of successive messages and the bytes each rank sends."""
    messages = ring_s(kind, payload, ranks, Link(latency_s=1.0, bytes_per_s=math.inf))
    sent = ring_s(kind, payload, ranks, Link(latency_s=0.0, bytes_per_s=1.0))
    return messages, sent
