"""The gain of a change of the step or of the link, from the fitted terms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, cast, get_args

import msgspec
import numpy as np

from ddp_perf.errors import ConfigError
from ddp_perf.scaling.fit import Band, ScalingFit
from ddp_perf.scaling.laws import Law, alpha_beta_laws
from ddp_perf.scaling.shape import (
    MIB,
    StepShape,
    ddp_shape,
    fsdp_exchanges,
    fsdp_shape,
    in_buckets,
    unknown_shape,
)
from ddp_perf.stats.link.model import Topology
from ddp_perf.stats.robust import Floats

ChangeKind = Literal["batch", "accumulate", "bucket", "fp16", "fsdp", "bandwidth", "latency"]
Exchanging = Literal["ddp", "fsdp"]
TERMS = ("compute", "latency", "bandwidth", "overlap")
_FORMS = "batch:N, accumulate:N, bucket:MB, fp16, fsdp, bandwidth:FACTOR or latency:FACTOR"
_MOST_BUCKETS = 4096  # of 25 MiB for 100 GiB of gradients: more is a typing error
_BARE = ("fp16", "fsdp")


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the step or of the link."""

    kind: ChangeKind
    value: float = 0.0  # samples (of a rank, or all of a global batch), micro-steps, MiB, a factor

    @property
    def text(self) -> str:
        """The change as `parse_change` reads it."""
        return self.kind if self.kind in _BARE else f"{self.kind}:{self.value:.12g}"


class StepTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The known properties of the step that a change starts from."""

    shape: StepShape
    strategy: Exchanging
    batch_size: int | None = None  # per rank and micro-step; None: not stated, or global_batch is
    global_batch: int | None = None  # over all ranks and micro-steps, of strong scaling
    micro_steps: int = 1
    has_hook: bool = False

    @property
    def batch(self) -> int | None:
        """The batch that a change ``batch:N`` replaces; None: not stated."""
        return self.batch_size if self.global_batch is None else self.global_batch


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """The throughput with a change ÷ without it, at one world size."""

    world_size: int
    ratio: Band
    term: str  # the term that gains most, of TERMS, or "none"
    saved: dict[str, float]  # seconds by term, for the samples of a step without the change


class _Effect(msgspec.Struct, frozen=True, kw_only=True):
    shape: StepShape
    batch: float = 1.0  # × samples of a micro-step; × seconds of compute that shrink with them
    steps: float = 1.0  # × micro-steps
    latency: float = 1.0  # × seconds a message
    transfer: float = 1.0  # × seconds a byte


def parse_change(text: str) -> WhatIf:
    """Parse ``accumulate:4``, ``fp16``, … Raises ConfigError with the valid forms."""
    kind, _, number = text.partition(":")
    if text in _BARE:
        return WhatIf(kind=cast(ChangeKind, text))
    counted = kind in ("batch", "accumulate")
    form = r"[0-9]{1,9}" if counted else r"[0-9]{1,9}(\.[0-9]{1,6})?"
    if kind in get_args(ChangeKind) and kind not in _BARE and re.fullmatch(form, number):
        value = float(number)
        if value > 0:
            return WhatIf(kind=cast(ChangeKind, kind), value=value)
    raise ConfigError(f"--change {text}: is not a change; write {_FORMS}")


def obstacle(change: WhatIf, work: StepTerms) -> str | None:
    """Return why this change cannot be predicted, or None if it can."""
    if change.kind == "batch" and work.batch is None:
        return "the batch size is not stated"
    if change.kind in ("accumulate", "bucket", "fp16", "fsdp") and work.strategy == "fsdp":
        return "it is modelled for DDP only"
    if change.kind in ("bucket", "fp16", "fsdp") and work.has_hook:
        return "a communication hook already decides what is sent"
    if change.kind == "bucket" and not work.shape.payload_known:
        return "the size of the gradients is not stated"
    if change.kind == "bucket" and work.shape.payload > _MOST_BUCKETS * change.value * MIB:
        return f"it would make more than {_MOST_BUCKETS} buckets"
    return None


def gain(change: WhatIf, work: StepTerms, topology: Topology, fit: ScalingFit, ranks: int) -> Gain:
    """Estimate the gain of a change that has no `obstacle`.

    Compute is assumed to be proportional to the samples, without its fixed part. `fit` must be of
    the `alpha_beta_laws` of this work and topology.
    """
    effect = _effect(change, work)
    laws = alpha_beta_laws(effect.shape, topology, strong=work.global_batch is not None)
    changed = {(law.name, law.overlap): law for law in laws}

    def after(law: Law, terms: Floats) -> Floats:
        """Return the parts for the samples of one step without the change."""
        parts = changed[law.name, law.overlap].parts(_changed(terms, effect), ranks)
        return parts / (effect.batch * effect.steps)

    ratio = fit.band(lambda law, terms: law.step_s(terms, ranks) / after(law, terms).sum(axis=0))
    saved = fit.mean(lambda law, terms: law.parts(terms, ranks) - after(law, terms))
    by_term = dict(zip(TERMS, saved.tolist(), strict=True))
    return Gain(world_size=ranks, ratio=ratio, term=_largest(by_term), saved=by_term)


def _changed(terms: Floats, effect: _Effect) -> Floats:
    """Return the terms with the change. Each micro-step has the fixed part of compute."""
    single, first, second, *fixed = terms  # fixed: of strong scaling
    proportional = single - sum(fixed)
    micro_step = single + proportional * (effect.batch - 1)
    return np.array(
        [
            micro_step * effect.steps,
            first * effect.latency,
            second * effect.transfer,
            *(part * effect.steps for part in fixed),
        ]
    )


def _largest(saved: dict[str, float]) -> str:
    """Return the term that saves most, or costs most if the total is a cost, or "none"."""
    if not any(saved.values()):
        return "none"
    sign = 1 if sum(saved.values()) >= 0 else -1
    return max(saved, key=lambda name: sign * saved[name])


def default_changes(work: StepTerms) -> Sequence[WhatIf]:
    """Return the usual changes. Ten times the bandwidth is NVLink 2 instead of PCIe 3."""
    changes = [
        *([WhatIf(kind="batch", value=2 * work.batch)] if work.batch else []),
        WhatIf(kind="accumulate", value=4 * work.micro_steps),
        WhatIf(kind="fp16"),
        WhatIf(kind="fsdp"),
        *(WhatIf(kind="bucket", value=size) for size in (5, 100)),
        WhatIf(kind="bandwidth", value=10),
        WhatIf(kind="latency", value=0.5),
    ]
    return [change for change in changes if obstacle(change, work) is None]


def _effect(change: WhatIf, work: StepTerms) -> _Effect:
    shape, value = work.shape, change.value
    match change.kind:
        case "batch":
            assert work.batch is not None  # otherwise `obstacle` refuses it
            return _Effect(shape=shape, batch=value / work.batch)
        case "accumulate":
            hiding = work.micro_steps / value  # share of the compute: the last micro-step
            pieces = [
                msgspec.structs.replace(piece, hideable=piece.hideable * hiding)
                for piece in shape.pieces
            ]
            longer = msgspec.structs.replace(shape, pieces=tuple(pieces))
            return _Effect(shape=longer, steps=1 / hiding)
        case "bucket":
            buckets = in_buckets(shape.payload, value * MIB)
            return _Effect(shape=ddp_shape(buckets, work.micro_steps))
        case "fp16":
            return _Effect(shape=shape, transfer=0.5)
        case "fsdp":  # one unit for each bucket
            units = fsdp_exchanges([exchange.payload for exchange in shape.exchanges])
            sharded = fsdp_shape(units) if shape.payload_known else unknown_shape("fsdp")
            return _Effect(shape=sharded)
        case "bandwidth":
            return _Effect(shape=shape, transfer=1 / value)
        case "latency":
            return _Effect(shape=shape, latency=value)
