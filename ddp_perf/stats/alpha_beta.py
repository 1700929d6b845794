"""The α-β model of a collective: a latency for each message, and bytes over bandwidth.

Hockney 1994; costs of the ring algorithms after Thakur, Rabenseifner & Gropp 2005, section 4.
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
    steps = _ring_steps(kind, ranks)
    share = payload if kind == "broadcast" else payload * steps / ranks  # pipelined, in chunks
    return steps * link.latency_s + (share / link.bytes_per_s if ranks > 1 else 0.0)


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Bus ÷ algorithm bandwidth, as nccl-tests' PERFORMANCE.md has it."""
    return 1.0 if kind == "broadcast" else _ring_steps(kind, ranks) / ranks


def _ring_steps(kind: CollectiveKind, ranks: int) -> int:
    return (2 if kind == "all_reduce" else 1) * (ranks - 1)
