"""The communication of a step, and the part of it that computation can hide.

DDP reduces a bucket when its gradients are ready and the previous bucket is done. With the
collectives numbered in order, the exposed communication after the backward is the largest, over
all i, of

    the communication of collectives i, i+1, … − the backward that is left when i is ready

FSDP gathers parameters ahead of the forward and the backward. Its first gather and its last
reduce-scatter cannot be hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ddp_perf.core.collective import CollectiveKind

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
