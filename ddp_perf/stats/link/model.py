"""The α-β model of a collective: a latency for each message, and bytes over bandwidth.

Hockney 1994; costs of the algorithms after Thakur, Rabenseifner & Gropp 2005, section 4; of the
tree of an all-reduce after Sanders, Speck & Träff 2009, which NCCL took up.
``payload`` is the size that nccl-tests prints: of the whole tensor, in bytes; for a
reduce-scatter that of its input, for an all-gather that of its output.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.core.collective import CollectiveKind


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What a message between two neighbouring ranks costs."""

    latency_s: float  # α
    bytes_per_s: float  # 1 ÷ β


def ring_s(kind: CollectiveKind, payload: float, ranks: int, link: Link) -> float:
    """Seconds of a collective by the ring algorithm; 0 for one rank."""
    return _ring_steps(kind, ranks) * link.latency_s + _transfer_s(kind, payload, ranks, link)


def tree_s(kind: CollectiveKind, payload: float, ranks: int, link: Link) -> float:
    """Seconds by a tree: as many bytes a rank as the ring, in ⌈log2 ranks⌉ messages a way.

    Of an all-reduce the double binary tree, pipelined; of the others recursive doubling or
    halving. 0 for one rank.
    """
    depth = (ranks - 1).bit_length()
    ways = 2 if kind == "all_reduce" else 1
    return ways * depth * link.latency_s + _transfer_s(kind, payload, ranks, link)


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Bus ÷ algorithm bandwidth, as nccl-tests' PERFORMANCE.md has it."""
    return 1.0 if kind == "broadcast" else _ring_steps(kind, ranks) / ranks


def _transfer_s(kind: CollectiveKind, payload: float, ranks: int, link: Link) -> float:
    """Of the bytes that each rank sends; pipelined, in chunks."""
    return payload * bus_factor(kind, ranks) / link.bytes_per_s if ranks > 1 else 0.0


def _ring_steps(kind: CollectiveKind, ranks: int) -> int:
    return (2 if kind == "all_reduce" else 1) * (ranks - 1)


Algorithm = Literal["ring", "tree", "hierarchical"]


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """What links the ranks, which fill node after node."""

    gpus_per_node: Annotated[int, Meta(ge=1)] | None = None  # None: one link for all of them
    intra: Link  # between two GPUs of a node
    inter: Link  # between two nodes: all adapters of a node together

    def nodes(self, ranks: int) -> int:
        return 1 if self.gpus_per_node is None else -(-ranks // self.gpus_per_node)

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        """Those that differ here; a library takes one or the other, and does not say which."""
        return ("ring", "tree") if self.gpus_per_node is None else ("ring", "tree", "hierarchical")


def flat(link: Link) -> Topology:
    """One link for all."""
    return Topology(intra=link, inter=link)


def collective_s(
    algorithm: Algorithm, kind: CollectiveKind, payload: float, ranks: int, topology: Topology
) -> float:
    """Seconds of a collective; 0 for one rank.

    A flat ring or tree moves at the pace of the slowest link in it. The hierarchical way is a
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
    if algorithm == "tree":  # the messages of each level by its own link
        near = Link(latency_s=intra.latency_s, bytes_per_s=float("inf"))
        far = Link(latency_s=inter.latency_s, bytes_per_s=float("inf"))
        messages_s = tree_s(kind, 0.0, per_node, near) + tree_s(kind, 0.0, nodes, far)
        wire = Link(latency_s=0.0, bytes_per_s=slowest.bytes_per_s)
        return messages_s + tree_s(kind, payload, ranks, wire)
    return ring_s(kind, payload, per_node, intra) + ring_s(kind, payload, nodes, inter)
