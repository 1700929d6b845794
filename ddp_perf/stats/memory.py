"""The memory of a rank by formula: model states, and gathered or copied parameters, in bytes.

Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, section 3.1) count 16 bytes for each parameter with
Adam in mixed precision: half parameters and gradients (2 + 2), and an FP32 copy with two moments
(12). This suite keeps its parameters in FP32 in every precision: parameters and gradients (4 + 4),
and two moments (8) with Adam. That is 16 bytes as well, and 8 with plain SGD.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

Optimizer = Literal["adam", "sgd"]
Sharding = Literal["ddp", "zero2", "zero3", "offload"]
_FULL, _HALF = 4, 2  # bytes of an FP32 number, and of FP16 or BF16
_MOMENTS = {"adam": 2, "sgd": 0}
_GATHERED_UNITS = 2  # of FSDP ZeRO-3: one is prefetched
# Layers of a transformer by its parameters: Brown et al. 2020 (GPT-3, arXiv:2005.14165), table 2.1.
_LAYERS = (
    (125e6, 12),
    (350e6, 24),
    (1.3e9, 24),
    (2.7e9, 32),
    (6.7e9, 32),
    (13e9, 40),
    (175e9, 96),
)


class RankMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a rank on its GPU, and in the host's memory."""

    states: float  # parameters, gradients and moments: always there
    copies: float  # gathered or copied parameters and gradients, beside the activations
    update: float  # temporary lists of the optimizer's step, which has no activations beside it
    host: float = 0.0
    build: float  # the whole model, which this suite builds on each rank before it is sharded
    activations: float | None = None  # None: not known

    @property
    def at_peak(self) -> dict[str, float]:
        """The parts of the largest sum at one time, without activations that are not known."""
        backward = {"copies of parameters": self.copies, "activations": self.activations or 0.0}
        update = {"lists of the optimizer's step": self.update}
        largest = max(backward, update, key=lambda parts: sum(parts.values()))
        parts = {"states": self.states, **largest}
        return {name: size for name, size in parts.items() if size}

    @property
    def peak(self) -> float:
        """The largest sum at one time, without the activations if they are not known."""
        return sum(self.at_peak.values())


def layers_of(parameters: float) -> int:
    """Return the layers of the transformer of GPT-3's family that is nearest in size."""
    return min(_LAYERS, key=lambda row: abs(math.log(row[0] / parameters)))[1]


def rank_memory(
    parameters: float,
    ranks: int,
    sharding: Sharding,
    *,
    optimizer: Optimizer = "adam",
    half: bool = False,
    activations: float | None = None,
) -> RankMemory:
    """Return the memory of a rank.

    DDP keeps all states on each rank, with `gradient_as_bucket_view`; without it the buckets are a
    second copy of the gradients. FSDP2 keeps 1/N of them. With ZeRO-2 all parameters stay
    gathered from the forward to the backward, with ZeRO-3 those of two layers; either has the
    gradients of one layer. In half precision, autocast keeps half copies of the weights until their
    backward, and FSDP2 gathers in half, but reduces gradients in FP32.
    """
    states = parameters * (2 + _MOMENTS[optimizer]) * _FULL
    built = parameters * _FULL
    gathered = parameters * (_HALF if half else _FULL)
    # torch.optim, "Algorithms": foreach uses about the size of the parameters more at its peak.
    update = parameters * _FULL if optimizer == "adam" else 0.0
    if sharding == "ddp":
        copies = gathered if half else 0.0
        return RankMemory(
            states=states, copies=copies, update=update, build=built, activations=activations
        )
    layers = layers_of(parameters)
    copies = gathered if sharding == "zero2" else _GATHERED_UNITS * gathered / layers
    copies += parameters * _FULL / layers
    on_host = sharding == "offload"
    return RankMemory(
        states=0.0 if on_host else states / ranks,
        copies=copies,
        update=0.0 if on_host else update / ranks,
        host=states / ranks if on_host else 0.0,
        build=built,
        activations=activations,
    )
