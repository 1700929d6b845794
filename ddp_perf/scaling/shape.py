"""What a step exchanges, and what of it its computing can hide.

DDP reduces a bucket when its gradients are there, and the next one when that is done. With the
collectives numbered in order, what shows behind the backward is the largest, over all i, of

    the communication of collectives i, i+1, … − the backward that is left when i is ready

FSDP gathers parameters ahead of the forward and the backward; its first gather and its last
reduce-scatter have nothing to hide behind.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ddp_perf.core.collective import CollectiveKind

# A backward multiplies twice as many matrices as its forward.
BACKWARD_SHARE = 2 / 3
MIB = 2**20


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of a step; its payload as nccl-tests counts it."""

    kind: CollectiveKind
    payload: float  # bytes, or shares of all gradients where their size is not known


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives that follow each other, and the share of computing that can hide them."""

    spans: tuple[tuple[int, int], ...]  # of the step's collectives: from which to before which
    hideable: float = 0.0


class StepShape(msgspec.Struct, frozen=True, kw_only=True):
    """The exposed communication of a step is that of the piece that shows most."""

    exchanges: tuple[Exchange, ...]  # in order
    pieces: tuple[Piece, ...]  # the first of them has every collective
    payload_known: bool = True  # False: payloads are shares of gradients of an unknown size

    @property
    def payload(self) -> float:
        return sum(exchange.payload for exchange in self.exchanges)

    def hideable_s(self, single_s: float) -> float:
        """At most so many seconds of communication can hide in a step of one rank."""
        nothing = self.payload_known and not any(piece.hideable for piece in self.pieces)
        return 0.0 if nothing else single_s


def ddp_shape(exchanges: Sequence[Exchange], micro_steps: int = 1) -> StepShape:
    """Of the collectives of a step, in order. Each is ready when the backward has come as far
    as their bytes: the last one when it ends. Of several micro-steps the last one alone hides.
    """
    total = sum(exchange.payload for exchange in exchanges)
    pieces, ready = [], 0.0
    for i, exchange in enumerate(exchanges):
        ready += exchange.payload
        left = BACKWARD_SHARE * (1 - ready / total) / micro_steps
        pieces.append(Piece(spans=((i, len(exchanges)),), hideable=max(left, 0.0)))
    return StepShape(exchanges=tuple(exchanges), pieces=tuple(pieces))


def fsdp_shape(exchanges: Sequence[Exchange]) -> StepShape:
    """Of the collectives of a step, in order: gathers ahead, reduce-scatters behind."""
    count = len(exchanges)
    ends = ((0, 1), (count - 1, count)) if count > 1 else ((0, 1),)
    return StepShape(
        exchanges=tuple(exchanges),
        pieces=(Piece(spans=((0, count),), hideable=1.0), Piece(spans=ends)),
    )


def fsdp_exchanges(units: Sequence[float]) -> list[Exchange]:
    """Units of so many bytes, each gathered in the forward and, last first, in the backward,
    and its gradients reduced and scattered (ZeRO-3; Rajbhandari et al. 2020, section 7.2).
    """
    forward = [Exchange(kind="all_gather", payload=unit) for unit in units]
    backward = [
        Exchange(kind=kind, payload=unit)
        for unit in reversed(units)
        for kind in ("all_gather", "reduce_scatter")
    ]
    return [*forward, *backward]


def unknown_shape(strategy: str) -> StepShape:
    """Of a step of which nothing is known: all gradients at once, and nothing hidden. What is
    fitted with it is the communication that shows, not all there is.
    """
    exchanges = (
        fsdp_exchanges([1.0]) if strategy == "fsdp" else [Exchange(kind="all_reduce", payload=1.0)]
    )
    whole = Piece(spans=((0, len(exchanges)),))
    return StepShape(exchanges=tuple(exchanges), pieces=(whole,), payload_known=False)


def in_buckets(gradient_bytes: float, bucket_bytes: float) -> list[Exchange]:
    """DDP's, all of one size but for what is left; in truth no layer is split."""
    full, rest = divmod(gradient_bytes, bucket_bytes)
    sizes = [bucket_bytes] * int(full) + ([rest] if rest else [])
    return [Exchange(kind="all_reduce", payload=size) for size in sizes]
