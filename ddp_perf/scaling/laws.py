"""Scaling laws in one form: the step of N ranks is computation plus a part that grows with N.

    step(N) = compute + max(0, the largest over the law's pieces of
              first × f(N) + second × s(N) − h × compute)

Compute, first and second are fitted seconds; none of them is negative. The functions f, s and h
define the law. Under weak scaling the speedup is N × step(1) ÷ step(N), which gives

    Amdahl (1967)              f = N − 1                     first ÷ compute = serial fraction
    α-β                        f = messages, s = bytes       latency, seconds a byte

A ring has 2(N − 1) messages: its latency is a serial fraction in Amdahl's law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from ddp_perf.scaling.shape import StepShape
from ddp_perf.stats.link.model import Algorithm, Link, Topology, collective_s
from ddp_perf.stats.robust import Floats

_SIGNS = (1, 1, -1)  # of f, s and h in the exposed communication
OVERLAPS = (0.0, 0.5, 1.0)  # overlaps that are tried if the overlap is not known


class Law(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a step over ranks.

    ``rows(N)`` has a row of f, s and h for each piece. The first piece has every collective.
    """

    name: str
    overlap: float = 0.0  # share of the hideable communication that is hidden
    rows: Callable[[int], Floats]

    def parts(self, terms: Floats, ranks: int) -> Floats:
        """Return the seconds of compute, latency, bandwidth and hidden communication (negative).

        `terms` is (3, n). The result is (4, n); its sum is the step.
        """
        rows = self.rows(ranks)
        first, second = rows[0, :2, None] * terms[1:]
        shown = (rows * _SIGNS @ terms[[1, 2, 0]]).max(axis=0)
        return np.array([terms[0], first, second, np.maximum(shown, 0.0) - first - second])

    def step_s(self, terms: Floats, ranks: int) -> Floats:
        """Return the step times in seconds (n,) of `terms` (3, n)."""
        total: Floats = self.parts(terms, ranks).sum(axis=0)
        return total


def amdahl() -> Law:
    """Return Amdahl's law: a part of the work is serial."""
    return Law(name="Amdahl", rows=lambda ranks: np.array([[ranks - 1, 0.0, 0.0]]))


def alpha_beta(
    shape: StepShape, topology: Topology, algorithm: Algorithm, overlap: float = 0.0
) -> Law:
    """Return the law of collectives by one algorithm.

    The fit finds the latency and the seconds per byte of the link within a node. The topology
    gives the ratio of the link between nodes to that link.
    """
    near, far = topology.intra, topology.inter
    messages = msgspec.structs.replace(
        topology,
        intra=Link(latency_s=1.0, bytes_per_s=math.inf),
        inter=Link(latency_s=_ratio(far.latency_s, near.latency_s), bytes_per_s=math.inf),
    )
    transfer = msgspec.structs.replace(
        topology,
        intra=Link(latency_s=0.0, bytes_per_s=1.0),
        inter=Link(latency_s=0.0, bytes_per_s=_ratio(far.bytes_per_s, near.bytes_per_s)),
    )

    def rows(ranks: int) -> Floats:
        latency = [collective_s(algorithm, e.kind, 0.0, ranks, messages) for e in shape.exchanges]
        bandwidth = [
            collective_s(algorithm, e.kind, e.payload, ranks, transfer) for e in shape.exchanges
        ]
        left = np.array([_from_each(latency), _from_each(bandwidth)])
        return np.array(
            [
                [
                    *np.sum([left[:, a] - left[:, b] for a, b in piece.spans], axis=0),
                    overlap * piece.hideable,
                ]
                for piece in shape.pieces
            ]
        )

    return Law(name=algorithm, overlap=overlap, rows=rows)


def _from_each(seconds: Sequence[float]) -> Floats:
    """Return the sums from each collective to the end, and 0: a span's sum is a difference."""
    return np.cumsum([0.0, *reversed(seconds)])[::-1]


def alpha_beta_laws(
    shape: StepShape, topology: Topology, overlap: float | None = None
) -> list[Law]:
    """Return a law for each algorithm, and for each overlap if it is not given.

    If the buckets are not known, it is not known either what could be hidden. Then the fit is of
    the exposed communication.
    """
    tried = (OVERLAPS if shape.payload_known else (0.0,)) if overlap is None else (overlap,)
    return [
        alpha_beta(shape, topology, algorithm, share)
        for algorithm in topology.algorithms
        for share in tried
    ]


def amdahl_limit(serial: float) -> float:
    """Return the speedup that no number of ranks exceeds; infinite without a serial part."""
    return 1 / serial if serial > 0 else math.inf


def _ratio(far: float, near: float) -> float:
    """Return the ratio of two links' figures; 1 if they are equal, even both 0 or infinite."""
    return 1.0 if far == near else far / near
