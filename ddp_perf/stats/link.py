"""The α-β model of a link, what is fitted of one, and the bytes that a rank sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.core.case import Case
from ddp_perf.core.launch import Collective, Structure
from ddp_perf.core.strategy import HierarchicalHook, PostLocalSgdHook
from ddp_perf.core.subject import CollectiveKind

# The α-β model of a collective: a latency for each message, and bytes over bandwidth.
#
# Hockney 1994; the costs of the algorithms follow Thakur, Rabenseifner & Gropp 2005, section 4. The
# tree of an all-reduce follows Sanders, Speck & Träff 2009, which NCCL adopted. ``payload`` is the
# size that nccl-tests prints, the bytes of the whole tensor: for a reduce-scatter that is its
# input, for an all-gather its output.


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


ModelKind = CollectiveKind | Literal["all_to_all"]


def fastest_s(
    kind: ModelKind, payload: float, ranks: int, topology: Topology
) -> tuple[float, float]:
    """Return the seconds of a collective by its fastest algorithm, and those of its latencies.

    Of an all-to-all ``payload`` is what a rank sends: all that leaves a node takes its link.
    """
    if kind == "all_to_all":
        whole, empty = (_all_to_all_s(size, ranks, topology) for size in (payload, 0.0))
        return whole, empty
    return min(
        (
            collective_s(each, kind, payload, ranks, topology),
            collective_s(each, kind, 0.0, ranks, topology),
        )
        for each in topology.algorithms
    )


def _all_to_all_s(payload: float, ranks: int, topology: Topology) -> float:
    nodes, inter = topology.nodes(ranks), topology.inter
    per_node = -(-ranks // nodes)
    within_s = ring_s("reduce_scatter", payload / nodes, per_node, topology.intra)
    leaving = per_node * payload * (nodes - 1) / nodes
    return max(within_s, (nodes - 1) * inter.latency_s + leaving / inter.bytes_per_s)


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


# The bytes that a rank sends in a step, from the exact structure of the step.


def sent_bytes(case: Case, structure: Structure) -> float | None:
    """Return the bytes that each rank sends, if every collective is a ring.

    A library may take another algorithm; a tree sends as many bytes. None: the steps differ
    (post-local SGD), or it is not known which collectives of a step are those of the hook.
    """
    if isinstance(case.training.comm_hook, PostLocalSgdHook):
        return None
    ranks: Sequence[int] | None = [case.world_size] * len(structure.collectives)
    if isinstance(case.training.comm_hook, HierarchicalHook):
        ranks = _ranks_by_group(case, case.training.comm_hook, structure.collectives)
    if case.replicates:  # gradients are reduced within a node, and their sums between nodes
        between, within = case.layout
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
