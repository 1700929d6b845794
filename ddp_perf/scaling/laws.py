"""Scaling laws in one form, the points that they are fitted to, and the communication of a step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from ddp_perf.core.subject import CollectiveKind
from ddp_perf.render.units import counted
from ddp_perf.stats.link import Algorithm, Link, Topology, collective_s
from ddp_perf.stats.robust import Floats, robust_sd

# The communication of a step, and the part of it that computation can hide.
#
# DDP reduces a bucket when its gradients are ready and the previous bucket is done. With the
# collectives numbered in order, the exposed communication after the backward is the largest, over
# all i, of
#
#     the communication of collectives i, i+1, … − the backward that is left when i is ready
#
# FSDP gathers parameters ahead of the forward and the backward. Its first gather and its last
# reduce-scatter cannot be hidden.


# A backward has twice as many matrix products as its forward.
BACKWARD_SHARE = 2 / 3
MIB = 2**20


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of a step. Its payload is counted as in nccl-tests."""

    kind: CollectiveKind
    payload: float  # bytes, or shares of all gradients if their size is not known


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Successive collectives, and the share of the computation that can hide them."""

    spans: tuple[tuple[int, int], ...]  # of the step's collectives: first, and one after the last
    hideable: float = 0.0


class StepShape(msgspec.Struct, frozen=True, kw_only=True):
    """The communication of a step. Its largest piece is the exposed communication."""

    exchanges: tuple[Exchange, ...]  # in order
    pieces: tuple[Piece, ...]  # the first piece has every collective
    payload_known: bool = True  # False: payloads are shares of gradients of an unknown size

    @property
    def payload(self) -> float:
        """The sum over the collectives: bytes, or shares of the gradients."""
        return sum(exchange.payload for exchange in self.exchanges)

    def hideable_s(self, single_s: float) -> float:
        """Return an upper bound of the seconds that a step of one rank can hide."""
        nothing = self.payload_known and not any(piece.hideable for piece in self.pieces)
        return 0.0 if nothing else single_s


def ddp_shape(exchanges: Sequence[Exchange], micro_steps: int = 1) -> StepShape:
    """Return the shape of a DDP step from its collectives, in order.

    A collective is ready when the backward has done its share of the bytes; the last one is ready
    at the end. Only the last of several micro-steps can hide communication.
    """
    total = sum(exchange.payload for exchange in exchanges)
    pieces, ready = [], 0.0
    for i, exchange in enumerate(exchanges):
        ready += exchange.payload
        left = BACKWARD_SHARE * (1 - ready / total) / micro_steps
        pieces.append(Piece(spans=((i, len(exchanges)),), hideable=max(left, 0.0)))
    return StepShape(exchanges=tuple(exchanges), pieces=tuple(pieces))


def fsdp_shape(exchanges: Sequence[Exchange]) -> StepShape:
    """Return the shape of an FSDP step from its collectives, in order."""
    count = len(exchanges)
    ends = ((0, 1), (count - 1, count)) if count > 1 else ((0, 1),)
    return StepShape(
        exchanges=tuple(exchanges),
        pieces=(Piece(spans=((0, count),), hideable=1.0), Piece(spans=ends)),
    )


def fsdp_exchanges(units: Sequence[float]) -> list[Exchange]:
    """Return the collectives of FSDP units, given the bytes of each unit.

    Each unit is gathered in the forward and again, last first, in the backward. Then its gradients
    are reduced and scattered (ZeRO-3; Rajbhandari et al. 2020, section 7.2).
    """
    forward = [Exchange(kind="all_gather", payload=unit) for unit in units]
    backward = [
        Exchange(kind=kind, payload=unit)
        for unit in reversed(units)
        for kind in ("all_gather", "reduce_scatter")
    ]
    return [*forward, *backward]


def unknown_shape(strategy: str) -> StepShape:
    """Return the shape of a step with unknown buckets: all gradients at once, nothing hidden.

    A fit with it is of the exposed communication, not of all communication.
    """
    exchanges = (
        fsdp_exchanges([1.0]) if strategy == "fsdp" else [Exchange(kind="all_reduce", payload=1.0)]
    )
    whole = Piece(spans=((0, len(exchanges)),))
    return StepShape(exchanges=tuple(exchanges), pieces=(whole,), payload_known=False)


def in_buckets(gradient_bytes: float, bucket_bytes: float) -> list[Exchange]:
    """Return DDP's all-reduces of buckets of equal size, and of the rest.

    The real DDP does not split a layer between buckets.
    """
    full, rest = divmod(gradient_bytes, bucket_bytes)
    sizes = [bucket_bytes] * int(full) + ([rest] if rest else [])
    return [Exchange(kind="all_reduce", payload=size) for size in sizes]


# Scaling laws in one form: the step of N ranks is computation plus a part that grows with N.
#
#     step(N) = compute(N) + max(0, the largest over the law's pieces of
#               first × f(N) + second × s(N) − h × compute(N))
#
#     compute(N) = single                                 weak scaling: each rank keeps its batch
#     compute(N) = fixed + (single − fixed) ÷ N           strong scaling: the ranks share one batch
#
# Single, first, second and fixed are fitted seconds; none of them is negative, and fixed is at most
# single: it is the part of one rank's compute that does not shrink with the batch, such as the
# launches of kernels and the optimizer's step. The functions f, s and h define the law. The speedup
# is N × step(1) ÷ step(N) under weak scaling, and step(1) ÷ step(N) under strong scaling, which
# gives
#
#     Amdahl (1967)        strong: f = 0              fixed ÷ single = serial fraction
#                          weak:   f = N − 1          first ÷ single = serial fraction
#     α-β                  f = messages, s = bytes    latency, seconds a byte
#
# Amdahl wrote his law for one problem that all processors share: strong scaling. Under weak scaling
# it is a formal analogue. A ring has 2(N − 1) messages: there its latency is a serial fraction.


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


# The points that a scaling law is fitted to: step times by world size, with their errors.


# Documents publish no spread, and authors round by a per cent (`stats.audit`). That is taken as two
# standard deviations. No law of a step is more exact than that either.
UNSTATED_ERROR = 0.005
# A law of strong scaling is less exact: the compute of a rank is no straight line of its batch.
# Chosen on every second published curve, and checked on the others: benchmarks/strong_scaling.py
STRONG_ERROR = 0.02
# The prior of the error weighs as much as one observation. If a law is wrong by more, the points
# widen the error.
ERROR_FREEDOM = 1


class ScalingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A step time at a number of ranks, at one batch: per rank (weak), or global (strong)."""

    world_size: int
    step_s: float
    error: float = 0.0  # standard error, as a share of it; 0: not known
    law_error: float = UNSTATED_ERROR  # of a law and of a figure without a spread; or STRONG_ERROR

    @property
    def uncertainty(self) -> float:
        """The standard error including `law_error`, as a share of the step time."""
        return math.hypot(self.error, self.law_error)


def point_of(world_size: int, steps: Sequence[float]) -> ScalingPoint:
    """Return the point at the median of steps of equal precision, such as those of launches.

    Its error is that of a median of normal logs. Their sd is their median absolute deviation ×
    1.4826, which launches in a slow mode do not widen. With fewer than three steps the error is 0,
    which means not known.
    """
    error = 0.0
    if len(steps) > 2:
        spread = robust_sd([math.log(step) for step in steps])
        error = math.sqrt(math.pi / 2 / len(steps)) * spread
    return ScalingPoint(world_size=world_size, step_s=statistics.median(steps), error=error)


def session_points(levels: Sequence[tuple[int, Sequence[float]]]) -> list[ScalingPoint]:
    """Return a point at the median of each world size's sessions, of which each has two or more.

    The error is that of one session, since the next measurement is one. It is pooled over the world
    sizes, because a handful of sessions gives a poor estimate.
    """
    logs = [[math.log(step) for step in steps] for _, steps in levels]
    squares = sum((len(one) - 1) * statistics.variance(one) for one in logs)
    error = math.sqrt(squares / sum(len(one) - 1 for one in logs))
    return [
        ScalingPoint(world_size=world_size, step_s=statistics.median(steps), error=error)
        for world_size, steps in levels
    ]


def first_invalid_point(points: Sequence[ScalingPoint]) -> str | None:
    """Return why no law can be fitted to these points, or None if one can."""
    for point in points:
        if point.world_size < 1:
            return f"{point.world_size} ranks is not a world size"
        if not 0 < point.step_s < math.inf:  # true of NaN as well
            return f"the step time of {ranks_text(point.world_size)} is {point.step_s}"
        if not 0 <= point.error < math.inf:
            return f"the error of {ranks_text(point.world_size)} is {point.error}"
    sizes = sorted({point.world_size for point in points})
    if len(sizes) < 2:
        given = f"only {ranks_text(sizes[0])}" if sizes else "none"
        return f"a law needs two world sizes, but the data have {given}"
    return None


def ranks_text(ranks: int) -> str:
    """Return "1 rank", "2 ranks", …"""
    return counted(ranks, "rank")
