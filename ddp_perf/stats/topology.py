"""Collectives over nodes of several GPUs: two links, and three ways to use them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.core.collective import CollectiveKind
from ddp_perf.stats.alpha_beta import Link, ring_s, tree_s

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
