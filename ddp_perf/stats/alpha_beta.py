"""The α-β model of a link: its values, its fit, and the bytes that a rank sends."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from ddp_perf.core.case import Case
from ddp_perf.core.launch import Collective, Structure
from ddp_perf.core.strategy import HierarchicalHook, PostLocalSgdHook
from ddp_perf.core.subject import CollectiveKind
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import upper_t

# The α-β model of a collective: a latency for each message, and bytes over bandwidth.
#
# Hockney 1994; the costs of the algorithms follow Thakur, Rabenseifner & Gropp 2005, section 4. The
# tree of an all-reduce follows Sanders, Speck & Träff 2009, which NCCL adopted. ``payload`` is the
# size that nccl-tests prints, the bytes of the whole tensor: for a reduce-scatter that is its
# input,
# for an all-gather its output.


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a message between two neighbouring ranks."""

    latency_s: float  # α
    bytes_per_s: float  # 1 ÷ β


def ring_s(kind: CollectiveKind, payload: float, ranks: int, link: Link) -> float:
    """Return the seconds of a collective by the ring algorithm; 0 for one rank."""
    return _ring_steps(kind, ranks) * link.latency_s + _transfer_s(kind, payload, ranks, link)


def tree_s(kind: CollectiveKind, payload: float, ranks: int, link: Link) -> float:
    """Return the seconds of a collective by a tree; 0 for one rank.

    Each rank sends as many bytes as in a ring, in ⌈log2 ranks⌉ messages each way. An all-reduce
    uses the double binary tree, pipelined; the other kinds use recursive doubling or halving.
    """
    depth = (ranks - 1).bit_length()
    ways = 2 if kind == "all_reduce" else 1
    return ways * depth * link.latency_s + _transfer_s(kind, payload, ranks, link)


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Return bus bandwidth ÷ algorithm bandwidth, as in nccl-tests' PERFORMANCE.md."""
    return 1.0 if kind == "broadcast" else _ring_steps(kind, ranks) / ranks


def _transfer_s(kind: CollectiveKind, payload: float, ranks: int, link: Link) -> float:
    """Return the seconds for the bytes that each rank sends, pipelined in chunks."""
    return payload * bus_factor(kind, ranks) / link.bytes_per_s if ranks > 1 else 0.0


def _ring_steps(kind: CollectiveKind, ranks: int) -> int:
    return (2 if kind == "all_reduce" else 1) * (ranks - 1)


Algorithm = Literal["ring", "tree", "hierarchical"]


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The links between the ranks, which fill one node after the other."""

    gpus_per_node: Annotated[int, Meta(ge=1)] | None = None  # None: one link for all of them
    intra: Link  # between two GPUs of a node
    inter: Link  # between two nodes: all adapters of a node together

    def nodes(self, ranks: int) -> int:
        """Return the number of nodes that this many ranks fill."""
        return 1 if self.gpus_per_node is None else -(-ranks // self.gpus_per_node)

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        """The algorithms that differ on this topology.

        A library takes one of them, and does not report which.
        """
        return ("ring", "tree") if self.gpus_per_node is None else ("ring", "tree", "hierarchical")


def flat(link: Link) -> Topology:
    """Return a topology with one link between all ranks."""
    return Topology(intra=link, inter=link)


def collective_s(
    algorithm: Algorithm, kind: CollectiveKind, payload: float, ranks: int, topology: Topology
) -> float:
    """Return the seconds of a collective; 0 for one rank.

    A flat ring or tree has the pace of its slowest link. The hierarchical algorithm is a
    reduce-scatter in each node, the collective between nodes, and an all-gather in each node.
    """
    nodes, intra, inter = topology.nodes(ranks), topology.intra, topology.inter
    if nodes == 1:
        flat_s = tree_s if algorithm == "tree" else ring_s
        return flat_s(kind, payload, ranks, intra)
    slowest = Link(
        latency_s=max(intra.latency_s, inter.latency_s),
        bytes_per_s=min(intra.bytes_per_s, inter.bytes_per_s),
    )
    if algorithm == "ring":
        return ring_s(kind, payload, ranks, slowest)
    per_node = -(-ranks // nodes)
    if algorithm == "tree":  # each level sends its messages over its own link
        near = Link(latency_s=intra.latency_s, bytes_per_s=float("inf"))
        far = Link(latency_s=inter.latency_s, bytes_per_s=float("inf"))
        messages_s = tree_s(kind, 0.0, per_node, near) + tree_s(kind, 0.0, nodes, far)
        wire = Link(latency_s=0.0, bytes_per_s=slowest.bytes_per_s)
        return messages_s + tree_s(kind, payload, ranks, wire)
    return ring_s(kind, payload, per_node, intra) + ring_s(kind, payload, nodes, inter)


# The values that `fit` returns of a link; they need neither numpy nor scipy.


Interval = tuple[float, float]
Part = Literal["latency", "bandwidth"]


class LinkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one call of a collective."""

    payload: int  # bytes, as in `model`
    seconds: float


class LinkFit(msgspec.Struct, frozen=True, kw_only=True):
    """The latency and bandwidth of a link, fitted to one collective, with 95 % intervals."""

    kind: CollectiveKind
    ranks: int
    link: Link
    latency_s: Interval
    bytes_per_s: Interval
    misfit: float  # root mean square of the relative residuals
    points: tuple[LinkPoint, ...]  # one for each size, median over launches, smallest first


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one part now ÷ before: 2 is half the speed."""

    ratio: float
    sessions: Interval | None = None  # range of the same ratio over the sessions before, if several


class LinkShift(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a link since earlier sessions. It is a description, not a test."""

    latency: Shift
    bandwidth: Shift  # of the time for a byte

    def slower(self, tolerance: float) -> list[Part]:
        """Return the parts that are slower by ``tolerance``, and than in any session before."""
        parts: dict[Part, Shift] = {"latency": self.latency, "bandwidth": self.bandwidth}
        return [
            name
            for name, shift in parts.items()
            if shift.ratio >= 1 + tolerance
            and (shift.sessions is None or shift.ratio > shift.sessions[1])
        ]


# Fit the latency and bandwidth of a link to times over sizes, and compare two such fits.
#
# Both are least squares on relative errors. Sizes span six orders of magnitude and times four, so
# absolute errors would not determine the latency.


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


# The bytes that a rank sends in a step, from the exact structure of the step.


def sent_bytes(case: Case, structure: Structure) -> float | None:
    """Return the bytes that each rank sends, if every collective is a ring.

    A library may take another algorithm; a tree sends as many bytes. None: the steps differ
    (post-local SGD), or it is not known which collectives of a step are those of the hook.
    """
    if isinstance(case.comm_hook, PostLocalSgdHook):
        return None
    ranks: Sequence[int] | None = [case.world_size] * len(structure.collectives)
    if isinstance(case.comm_hook, HierarchicalHook):
        ranks = _ranks_by_group(case, case.comm_hook, structure.collectives)
    if case.replicates:  # gradients are reduced within a node, and their sums between nodes
        within, between = case.ranks_per_node, case.nodes
        ranks = [between if c.kind == "all_reduce" else within for c in structure.collectives]
    if ranks is None:
        return None
    return sum(map(_sent, structure.collectives, ranks))


def _sent(one: Collective, ranks: int) -> float:
    return one.bytes * bus_factor(one.kind, ranks)  # type: ignore[arg-type]  # others: a gather


def _ranks_by_group(
    case: Case, hook: HierarchicalHook, collectives: Sequence[Collective]
) -> list[int] | None:
    """Return the ranks of each collective. Of each bucket, the first and the last are in a group.

    Broadcasts, of buffers, are those of all ranks. None: there are others than those of the hook.
    """
    of_a_bucket = 3 if hook.ratio is None else 4
    size = case.group_size
    assert size is not None  # the hook has groups
    sizes = [size, *[case.world_size // size] * (of_a_bucket - 2), size]
    own = [one for one in collectives if one.kind != "broadcast"]
    if len(own) % of_a_bucket:
        return None
    of_hook = iter(sizes * (len(own) // of_a_bucket))
    return [case.world_size if one.kind == "broadcast" else next(of_hook) for one in collectives]
