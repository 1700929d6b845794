"""The α-β model of a collective: a latency for each message, and bytes over bandwidth.

Hockney 1994; the costs of the algorithms follow Thakur, Rabenseifner & Gropp 2005, section 4. The
tree of an all-reduce follows Sanders, Speck & Träff 2009, which NCCL adopted. ``payload`` is the
size that nccl-tests prints, the bytes of the whole tensor: for a reduce-scatter that is its input,
for an all-gather its output.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.core.collective import CollectiveKind


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
