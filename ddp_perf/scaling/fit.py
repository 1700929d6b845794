"""The Bayesian fit of scaling laws to points, and the gain of a change from the fitted terms."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Literal, cast, get_args

import msgspec
import numpy as np
from scipy import special

from ddp_perf.errors import ConfigError
from ddp_perf.scaling.laws import (
    ERROR_FREEDOM,
    MIB,
    Law,
    ScalingPoint,
    StepShape,
    alpha_beta_laws,
    ddp_shape,
    first_invalid_point,
    fsdp_exchanges,
    fsdp_shape,
    in_buckets,
    unknown_shape,
)
from ddp_perf.stats.link import Topology
from ddp_perf.stats.robust import Floats

# The Bayesian fit of scaling laws to points, and the bands of its predictions.
#
# The prior is uniform over three things: the share of the step at the largest world size that is
# above the ideal step, the split of this share into a law's terms, and the laws. Errors are normal
# on the log scale. The prior of their variance weighs as much as `points.ERROR_FREEDOM`
# observations. Level and variance are integrated out exactly (Gelman et al., Bayesian Data
# Analysis, 3rd ed., 14.2). Share and split are integrated on a grid that is refined where the
# likelihood is large. The terms of strong scaling are split twice: the first one from the rest, and
# the rest into second and fixed. Over one link, and if nothing is hidden, these two have one form,
# so that no points can distinguish them, and no prediction depends on their split. A coarse grid is
# enough for it: one of 41 nodes gives the same bands. No term can be negative, no random number is
# drawn, and few points give a wide band, not an error.


CONFIDENCE = 0.9
_GRIDS = (101, 101, 101, 101, 51)  # nodes along each axis: four refinements, then the weights
_STRONG_GRIDS = (51,) * 5  # the same, along the first two of three axes
_SPLITS = 11  # nodes along the third
_NEVER = 1e-300  # a probability whose logarithm is finite
_FAR = 15  # times the error of the best node: nodes beyond are dropped
_MOST_ODDS = 9.0  # log: the growing share is between 0.0001 and 0.9999 of the step
_QUANTILES = (np.arange(21) + 0.5) / 21  # of the error at each node


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A 90 % interval with equal tails: its median and its ends."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """The half of the width of the interval, as a share of the value."""
        return (self.high - self.low) / 2 / self.value

    def contains(self, value: float) -> bool:
        """Return whether the interval contains a value."""
        return self.low <= value <= self.high


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """The posterior of one law: combinations of terms, in seconds, and their weights."""

    law: Law
    terms: Floats  # (3, n): single, first, second; (4, n) under strong scaling: fixed
    weights: Floats  # (n,): the sum over the nodes of all laws is 1
    error: Floats  # (n,): log scale of a new measurement's error
    freedom: float  # degrees of freedom of that error's t distribution


Functional = Callable[[Law, Floats], Floats]  # (law, terms) → (…, n)


class ScalingFit:
    """The posterior of several laws, given the points."""

    def __init__(self, nodes: Sequence[Nodes], points: Sequence[ScalingPoint]) -> None:
        self.nodes = tuple(nodes)
        self.points = tuple(points)

    def weights(self) -> dict[str, float]:
        """Return the probability of each law, by its name."""
        total: dict[str, float] = {}
        for of_law in self.nodes:
            name = of_law.law.name
            total[name] = total.get(name, 0.0) + float(of_law.weights.sum())
        return total

    def band(self, functional: Functional) -> Band:
        """Return the band of a function of the terms, such as a ratio of two steps."""
        values = [functional(of_law.law, of_law.terms) for of_law in self.nodes]
        return _band(np.concatenate(values), np.concatenate([n.weights for n in self.nodes]))

    def mean(self, functional: Functional) -> Floats:
        """Return the means of several functions of the terms: (…, n) → (…)."""
        means = [
            (functional(of_law.law, of_law.terms) * of_law.weights).sum(axis=-1)
            for of_law in self.nodes
        ]
        total: Floats = np.sum(means, axis=0)
        return total

    def only(self, name: str) -> ScalingFit:
        """Return the fit with only the law of this name."""
        nodes = [of_law for of_law in self.nodes if of_law.law.name == name]
        return ScalingFit(nodes, self.points)

    def predict(self, ranks: int) -> Band:
        """Estimate the step time in seconds of a new measurement, with that measurement's error."""
        values, weights = [], []
        for of_law in self.nodes:
            quantiles = special.stdtrit(of_law.freedom, _QUANTILES)
            steps = of_law.law.step_s(of_law.terms, ranks)
            values.append((steps[:, None] * np.exp(of_law.error[:, None] * quantiles)).ravel())
            weights.append(np.repeat(of_law.weights / len(quantiles), len(quantiles)))
        return _band(np.concatenate(values), np.concatenate(weights))

    def misfit(self) -> float:
        """Return the largest distance of a point from the best law, as a share of the point."""
        best = max(self.nodes, key=lambda of_law: float(of_law.weights.max()))
        terms = best.terms[:, [int(np.argmax(best.weights))]]
        return max(
            abs(math.log(float(best.law.step_s(terms, point.world_size)[0]) / point.step_s))
            for point in self.points
        )


def fit_laws(laws: Sequence[Law], points: Sequence[ScalingPoint]) -> ScalingFit:
    """Fit the laws to the points. Raises ValueError, with the reason, if that is impossible."""
    if problem := first_invalid_point(points):
        raise ValueError(problem)
    grids = [_grid_of(law, points) for law in laws]
    best = max(float(log_weight.max()) for _, log_weight in grids)
    total = sum(float(np.exp(log_weight - best).sum()) for _, log_weight in grids)
    nodes = []
    for law, (terms, log_weight) in zip(laws, grids, strict=True):
        level, variance, freedom = _residuals(law, terms, points)
        nodes.append(
            Nodes(
                law=law,
                terms=terms * np.exp(level),
                weights=np.exp(log_weight - best) / total,
                error=np.sqrt(variance * (1 + 1 / len(points))),
                freedom=freedom,
            )
        )
    return ScalingFit(nodes, points)


def _grid_of(law: Law, points: Sequence[ScalingPoint]) -> tuple[Floats, Floats]:
    """Return terms of a step of about one second, and the log weight of each (n,).

    The grid has three axes: the share of the largest step that is above the ideal, uniform in log
    odds so that both ends are resolved, the part of the first term in this share, and the part of
    the fixed term in the rest.
    """
    largest = max(point.world_size for point in points)
    box = [(-_MOST_ODDS, _MOST_ODDS), *_splits(*_weights_of(law, largest))]
    for count in _STRONG_GRIDS if law.strong else _GRIDS:
        grid = (count, count, _SPLITS)
        counts = [n if high > low else 1 for n, (low, high) in zip(grid, box, strict=True)]
        axes = [np.linspace(low, high, n) for n, (low, high) in zip(counts, box, strict=True)]
        nodes = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
        terms = _terms(law, largest, nodes)
        _, variance, freedom = _residuals(law, terms, points)
        if law.strong:
            variance[terms[3] > terms[0]] = np.inf  # more does not shrink than there is
        near = variance < _FAR**2 * variance.min()
        steps = [(high - low) / max(n - 1, 1) for n, (low, high) in zip(counts, box, strict=True)]
        box = [
            (max(low, values[near].min() - step), min(high, values[near].max() + step))
            for values, (low, high), step in zip(nodes, box, steps, strict=True)
        ]
    share = special.expit(nodes[0])
    cell = math.prod(step for step in steps if step) * share * (1 - share)  # of even shares
    if steps[1] and steps[2]:
        cell *= np.maximum(1 - nodes[1], _NEVER)  # of even splits into three
    return terms, np.log(cell) - freedom / 2 * np.log(variance)


def _weights_of(law: Law, ranks: int) -> tuple[float, float, float]:
    """Return the seconds that a second of first, second and fixed each adds to the ideal step."""
    first, second = law.rows(ranks)[0, :2]
    return float(first), float(second), 1 - law.ideal(ranks)


def _splits(first: float, second: float, fixed: float) -> list[tuple[float, float]]:
    """Return the ranges of the two splits; a term without a weight has no part."""
    rest = bool(second or fixed)
    return [
        (0.0 if rest else 1.0, 1.0 if first else 0.0),
        (0.0 if second or not fixed else 1.0, 1.0 if fixed else 0.0),
    ]


def _terms(law: Law, largest: int, nodes: Sequence[Floats]) -> Floats:
    """Return the terms of the nodes, which make a largest step of one second."""
    share, part, split = special.expit(nodes[0]), nodes[1], nodes[2]
    first, second, fixed = _weights_of(law, largest)
    rest = share * (1 - part)
    terms = [
        (1 - share) / law.ideal(largest),
        share * part / (first or 1),
        rest * (1 - split) / (second or 1),
    ]
    return np.array([*terms, rest * split / fixed] if law.strong else terms)


def _residuals(
    law: Law, terms: Floats, points: Sequence[ScalingPoint]
) -> tuple[Floats, Floats, float]:
    """Return the level (log seconds) and the error's variance of each node, and its freedom."""
    precision = np.array([point.uncertainty**-2 for point in points])
    weights = precision / precision.mean()
    logs = np.array([math.log(p.step_s) - np.log(law.step_s(terms, p.world_size)) for p in points])
    level = np.average(logs, axis=0, weights=weights)
    squares = (weights[:, None] * (logs - level) ** 2).sum(axis=0)
    freedom = ERROR_FREEDOM + len(points) - 1
    return level, (ERROR_FREEDOM / precision.mean() + squares) / freedom, freedom


def _band(values: Floats, weights: Floats) -> Band:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    tail = (1 - CONFIDENCE) / 2
    # A search, not an interpolation: values may be infinite.
    at = np.searchsorted(reached / reached[-1], [0.5, tail, 1 - tail])
    middle, low, high = (float(value) for value in values[order][at])
    return Band(value=middle, low=low, high=high)


# The gain of a change of the step or of the link, from the fitted terms.


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
