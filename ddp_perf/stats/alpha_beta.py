"""The α-β model of a collective: a latency for each message, and bytes over bandwidth.

Hockney 1994; costs of the algorithms after Thakur, Rabenseifner & Gropp 2005, section 4; of the
tree of an all-reduce after Sanders, Speck & Träff 2009, which NCCL took up.
``payload`` is the size that nccl-tests prints: of the whole tensor, in bytes; for a
reduce-scatter that of its input, for an all-gather that of its output.
"""

from __future__ import annotations

import msgspec

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
