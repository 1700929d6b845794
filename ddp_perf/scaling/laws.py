"""Scaling laws in one form: the step of N ranks is computation plus a part that grows with N.

    step(N) = compute(N) + max(0, the largest over the law's pieces of
              first × f(N) + second × s(N) − h × compute(N))

    compute(N) = single                                 weak scaling: each rank keeps its batch
    compute(N) = fixed + (single − fixed) ÷ N           strong scaling: the ranks share one batch

Single, first, second and fixed are fitted seconds; none of them is negative, and fixed is at most
single: it is the part of one rank's compute that does not shrink with the batch, such as the
launches of kernels and the optimizer's step. The functions f, s and h define the law. The speedup
is N × step(1) ÷ step(N) under weak scaling, and step(1) ÷ step(N) under strong scaling, which gives

    Amdahl (1967)        strong: f = 0              fixed ÷ single = serial fraction
                         weak:   f = N − 1          first ÷ single = serial fraction
    α-β                  f = messages, s = bytes    latency, seconds a byte

Amdahl wrote his law for one problem that all processors share: strong scaling. Under weak scaling
it is a formal analogue. A ring has 2(N − 1) messages: there its latency is a serial fraction.
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
    strong: bool = False  # the ranks share one batch

    def ideal(self, ranks: int) -> float:
        """Return the ideal step of N ranks as a share of the step of one rank."""
        return 1 / ranks if self.strong else 1.0

    def parts(self, terms: Floats, ranks: int) -> Floats:
        """Return the seconds of compute, latency, bandwidth and hidden communication (negative).

        `terms` is (3, n): single, first and second; under strong scaling it is (4, n), with fixed.
        The result is (4, n); its sum is the step.
        """
        rows, compute = self.rows(ranks), terms[0]
        if self.strong:
            compute = terms[3] + (terms[0] - terms[3]) / ranks
        first, second = rows[0, :2, None] * terms[1:3]
        shown = (rows * _SIGNS @ np.array([terms[1], terms[2], compute])).max(axis=0)
        return np.array([compute, first, second, np.maximum(shown, 0.0) - first - second])

    def step_s(self, terms: Floats, ranks: int) -> Floats:
        """Return the step times in seconds (n,) of `terms`."""
        total: Floats = self.parts(terms, ranks).sum(axis=0)
        return total

    def speedup(self, terms: Floats, ranks: int) -> Floats:
        """Return the speedups (n,) against one rank, by the throughput."""
        ideal_s = self.step_s(terms, 1) * self.ideal(ranks)
        speedup: Floats = ranks * ideal_s / self.step_s(terms, ranks)
        return speedup


def amdahl(*, strong: bool = False) -> Law:
    """Return Amdahl's law: a part of the work is serial."""
    growing = 0.0 if strong else 1.0
    return Law(
        name="Amdahl",
        rows=lambda ranks: np.array([[growing * (ranks - 1), 0.0, 0.0]]),
        strong=strong,
    )


def alpha_beta(
    shape: StepShape,
    topology: Topology,
    algorithm: Algorithm,
    overlap: float = 0.0,
    *,
    strong: bool = False,
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

    return Law(name=algorithm, overlap=overlap, rows=rows, strong=strong)


def _from_each(seconds: Sequence[float]) -> Floats:
    """Return the sums from each collective to the end, and 0: a span's sum is a difference."""
    return np.cumsum([0.0, *reversed(seconds)])[::-1]


def alpha_beta_laws(
    shape: StepShape, topology: Topology, overlap: float | None = None, *, strong: bool = False
) -> list[Law]:
    """Return a law for each algorithm, and for each overlap if it is not given.

    If the buckets are not known, it is not known either what could be hidden. Then the fit is of
    the exposed communication.
    """
    tried = (OVERLAPS if shape.payload_known else (0.0,)) if overlap is None else (overlap,)
    return [
        alpha_beta(shape, topology, algorithm, share, strong=strong)
        for algorithm in topology.algorithms
        for share in tried
    ]


def amdahl_limit(serial: float) -> float:
    """Return the speedup that no number of ranks exceeds; infinite without a serial part."""
    return 1 / serial if serial > 0 else math.inf


def _ratio(far: float, near: float) -> float:
    """Return the ratio of two links' figures; 1 if they are equal, even both 0 or infinite."""
    return 1.0 if far == near else far / near
