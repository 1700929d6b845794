"""Predictions from a scaling curve: bands, limits, changes of the step, cost, and Amdahl's law."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from ddp_perf.render.units import short_number
from ddp_perf.scaling.curves import ScalingCurve, link_clashes
from ddp_perf.scaling.fit import (
    Band,
    Gain,
    ScalingFit,
    WhatIf,
    default_changes,
    fit_laws,
    gain,
    obstacle,
)
from ddp_perf.scaling.laws import (
    Law,
    ScalingPoint,
    alpha_beta_laws,
    amdahl,
    amdahl_limit,
    ranks_text,
)
from ddp_perf.stats.hardware import Configuration, Cost, best_within, cost_of, training
from ddp_perf.stats.link import Topology
from ddp_perf.stats.robust import Floats

# Amdahl's law beside the α-β model: fitted to the same points, and without a vote.


class CrossCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one further law: its parameters, its limit and its steps."""

    law: str
    parameters: dict[str, Band]
    implied: str  # the meaning of the limit, in words
    limit: Band  # infinite if the interval reaches no limit
    step_s: dict[int, Band]  # by world size


def amdahl_check(
    points: Sequence[ScalingPoint], sizes: Sequence[int], *, strong: bool = False
) -> CrossCheck:
    """Fit Amdahl's law to the points and return its serial fraction, limit and steps at `sizes`.

    Raises ValueError, with the reason, if the points cannot be fitted.
    """
    fit = fit_laws([amdahl(strong=strong)], points)
    serial = fit.band(lambda law, terms: terms[3 if law.strong else 1] / terms[0])
    return CrossCheck(
        law="Amdahl",
        parameters={"serial fraction": serial},
        implied="speedup never over",
        limit=Band(
            value=amdahl_limit(serial.value),
            low=amdahl_limit(serial.high),
            high=amdahl_limit(serial.low),
        ),
        step_s={ranks: fit.predict(ranks) for ranks in sizes},
    )


# Predictions from a scaling curve: bands, limits, changes of the step, and cost.


_POWERS = [2**power for power in range(41)]  # ranks: a speedup has reached its limit at the last
_NO_LIMIT = 2**20  # a larger speedup counts as no limit
_SLACK = 2  # standard errors
_CHECKED = 2  # times the fitted ranks: how far held-out curves of strong scaling reach


class PredictRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a prediction."""

    world_sizes: tuple[int, ...]
    fit_world_sizes: tuple[int, ...] | None = None  # None: all of them
    topology: Topology
    measured_links: bool = False  # the topology is of the collectives in the file
    changes: tuple[WhatIf, ...] | None = None  # None: `default_changes`
    price_per_gpu_hour: float | None = None  # None: the price in the data, if any
    samples: float | None = None  # of a whole training; sequences if throughput counts tokens
    deadline_h: float | None = None
    budget: float | None = None


class PredictedStep(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction for one world size, and its step time in the data."""

    world_size: int
    step_s: Band
    throughput: Band | None  # per second, over all ranks; None: the samples are not stated
    efficiency: Band  # against the fitted step of one rank
    parts: dict[str, float]  # mean seconds by term; hidden communication is negative
    given_s: float | None = None  # the step time in the data
    fitted: bool = False  # True if the fit used it
    cost: Cost | None = None

    @property
    def held_out_error(self) -> float | None:
        """Predicted ÷ given − 1; None if no step time was held out."""
        held_out = self.given_s is not None and not self.fitted
        return self.step_s.value / self.given_s - 1 if held_out and self.given_s else None


class FittedLink(msgspec.Struct, frozen=True, kw_only=True):
    """The fitted link within a node."""

    latency_s: Band
    bytes_per_s: Band | None  # None: the size of the gradients is not stated


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction of one scaling curve, or the reason why there is none."""

    series: ScalingCurve
    refusal: str | None = None  # why nothing is predicted
    fitted: tuple[int, ...] = ()
    gpus_per_node: int | None = None  # of the topology; None: one link for all ranks
    notes: tuple[str, ...] = ()
    algorithms: dict[str, float] = {}  # probability of each
    speedup_limit: dict[str, Band] = {}  # by algorithm; infinite: no limit
    fixed_compute: Band | None = None  # strong scaling: its share of the step of one rank
    link: FittedLink | None = None
    steps: tuple[PredictedStep, ...] = ()
    cross_checks: tuple[CrossCheck, ...] = ()
    gains: dict[str, tuple[Gain, ...]] = {}  # by change
    not_gained: dict[str, str] = {}  # why a change is not predicted, by change
    best: Configuration | None = (
        None  # within the deadline or the budget, by the slow ends of the bands
    )


def predict_all(series: Sequence[ScalingCurve], request: PredictRequest) -> list[Prediction]:
    """Fit each scaling curve and predict its steps, unless it contradicts another curve."""
    clashes = link_clashes(series)
    return [
        Prediction(series=one, refusal=clashes[i]) if i in clashes else _predict(one, request)
        for i, one in enumerate(series)
    ]


def _predict(series: ScalingCurve, request: PredictRequest) -> Prediction:
    if refusal := _other_layout(series, request.topology):
        return Prediction(series=series, refusal=refusal)
    wanted = request.fit_world_sizes
    points = [p for p in series.points if wanted is None or p.world_size in wanted]
    try:
        laws = alpha_beta_laws(series.work.shape, request.topology, strong=series.strong)
        fit = fit_laws(laws, points)
    except ValueError as error:
        return Prediction(series=series, refusal=str(error))
    fitted = tuple(sorted({point.world_size for point in points}))
    sizes = sorted({*request.world_sizes, *(p.world_size for p in series.points)})
    price = request.price_per_gpu_hour or series.price_per_gpu_hour
    steps = [_step(series, fit, ranks, fitted, price) for ranks in sizes]
    changes = default_changes(series.work) if request.changes is None else request.changes
    obstacles = {change.text: obstacle(change, series.work) for change in changes}
    return Prediction(
        series=series,
        fitted=fitted,
        gpus_per_node=request.topology.gpus_per_node,
        notes=tuple(_notes(series, points, fit, request)),
        algorithms=fit.weights(),
        speedup_limit={name: fit.only(name).band(_final_speedup) for name in fit.weights()},
        fixed_compute=_fixed_compute(series, fit),
        link=_link(series, fit),
        steps=tuple(steps),
        cross_checks=(amdahl_check(points, sizes, strong=series.strong),),
        gains={
            change.text: tuple(
                gain(change, series.work, request.topology, fit, ranks)
                for ranks in sizes
                if ranks in request.world_sizes
            )
            for change in changes
            if obstacles[change.text] is None
        },
        not_gained={text: reason for text, reason in obstacles.items() if reason is not None},
        best=_best(series, steps, price, request),
    )


def _other_layout(series: ScalingCurve, topology: Topology) -> str | None:
    """Return how the nodes of the curve differ from those of the topology, or None."""
    of_curve, given = series.ranks_per_node, topology.gpus_per_node
    if of_curve is None or given in (None, of_curve):
        return None
    return (
        f"its cases of several nodes have {of_curve} ranks on each, and the links are of nodes with"
        f" {given} GPUs: give --network gpus_per_node={of_curve},…"
    )


def _step(
    series: ScalingCurve, fit: ScalingFit, ranks: int, fitted: Sequence[int], price: float | None
) -> PredictedStep:
    step_s = fit.predict(ranks)
    given = [point.step_s for point in series.points if point.world_size == ranks]
    compute, latency, bandwidth, hidden = fit.mean(lambda law, terms: law.parts(terms, ranks))
    cost = throughput = None
    samples, single_samples = series.samples_of(ranks), series.samples_of(1)
    if samples is not None and single_samples is not None:
        throughput = Band(
            value=samples / step_s.value, low=samples / step_s.high, high=samples / step_s.low
        )
        if price is not None:
            cost = cost_of(
                world_size=ranks,
                throughput=throughput.value,
                price_per_gpu_hour=price,
                epoch_samples=series.epoch_samples,
                single_throughput=single_samples / fit.predict(1).value,
            )
    return PredictedStep(
        world_size=ranks,
        step_s=step_s,
        throughput=throughput,
        efficiency=fit.band(lambda law, terms: law.speedup(terms, ranks) / ranks),
        parts={
            "compute": float(compute),
            "latency": float(latency),
            "bandwidth": float(bandwidth),
            "hidden": float(hidden),
        },
        given_s=given[0] if given else None,
        fitted=ranks in fitted,
        cost=cost,
    )


def _final_speedup(law: Law, terms: Floats) -> Floats:
    """Return the largest speedup: under strong scaling it falls again with too many ranks."""
    sizes = _POWERS if law.strong else _POWERS[-1:]
    speedup: Floats = np.max([law.speedup(terms, ranks) for ranks in sizes], axis=0)
    speedup[speedup > _NO_LIMIT] = math.inf
    return speedup


def _fixed_compute(series: ScalingCurve, fit: ScalingFit) -> Band | None:
    return fit.band(lambda law, terms: terms[3] / terms[0]) if series.strong else None


def _link(series: ScalingCurve, fit: ScalingFit) -> FittedLink:
    known = series.work.shape.payload_known
    return FittedLink(
        latency_s=fit.band(lambda law, terms: terms[1]),
        bytes_per_s=fit.band(lambda law, terms: _inverse(terms[2])) if known else None,
    )


def _notes(
    series: ScalingCurve, points: Sequence[ScalingPoint], fit: ScalingFit, request: PredictRequest
) -> list[str]:
    """Return the notes that a reader of the figures needs."""
    notes = []
    singles = [point for point in points if point.world_size == 1]
    for point in points:
        for single in singles:
            ideal = 1 / point.world_size if series.strong else 1.0
            faster = 1 - point.step_s / (single.step_s * ideal)
            if faster > _SLACK * math.hypot(point.uncertainty, single.uncertainty):
                notes.append(
                    f"{ranks_text(point.world_size)} take {faster:.1%} less time than"
                    f" {'the ideal' if series.strong else '1 rank'}: an efficiency over 1 is an"
                    " error of measurement, and no law fits it"
                )
    misfit = fit.misfit()
    if misfit > 2 * _SLACK * max(point.uncertainty for point in points):
        notes.append(f"the best law is {misfit:.1%} off at one of the points: it does not fit")
    if not singles:
        notes.append("the points have no step of one rank: compute is extrapolated, too")
    if not series.work.shape.payload_known:
        notes.append("the buckets are not stated: the terms are of the exposed communication")
    largest = max(point.world_size for point in points)
    if series.strong:
        notes += _of_strong_scaling(largest, request)
    per_node = request.topology.gpus_per_node
    if series.sessions == 1:
        notes.append("a point rests on one session: how sessions differ is not in the bands")
    if per_node is None and max(request.world_sizes) > largest:
        notes.append(
            f"beyond {ranks_text(largest)} the bands hold only if all ranks have the link of the"
            " fitted ones: if the link between nodes is slower, give --network"
        )
    if per_node is None and series.ranks_per_node is not None:
        notes.append(
            "some points span several nodes, and one link is fitted to all points: give"
            " --network, or measure collectives on as many nodes"
        )
    if per_node is not None and largest <= per_node:
        source = "measured" if request.measured_links else "given"
        notes.append(f"no fitted point spans several nodes: the link between nodes is as {source}")
    if request.measured_links:
        notes.append(_of_links(request.topology))
    return notes


def _of_links(topology: Topology) -> str:
    """Return the links that the file's collectives determine."""
    within, between = (
        f"{short_number(link.latency_s * 1e6)} µs and {short_number(link.bytes_per_s / 1e9)} GB/s"
        for link in (topology.intra, topology.inter)
    )
    return (
        f"the file's all-reduces by the ring model: {within} within a node of"
        f" {topology.gpus_per_node} ranks, {between} between nodes; the fit takes their ratio"
    )


def _of_strong_scaling(largest: int, request: PredictRequest) -> Iterator[str]:
    yield (
        "compute that does not shrink with the batch, and bandwidth, approach a constant both: over"
        " one link, and where nothing is hidden, the points cannot distinguish them"
    )
    if max(request.world_sizes) > _CHECKED * largest:
        yield (
            f"beyond {ranks_text(_CHECKED * largest)} the bands hold only if the compute of a rank"
            " stays a straight line of its batch: published curves check it up to there"
        )


def _best(
    series: ScalingCurve,
    steps: Sequence[PredictedStep],
    price: float | None,
    request: PredictRequest,
) -> Configuration | None:
    if price is None or request.samples is None:
        return None
    configurations = [
        training(
            world_size=step.world_size,
            throughput=step.throughput.low,
            samples=request.samples * series.per_sample,
            price_per_gpu_hour=price,
        )
        for step in steps
        if step.throughput is not None
    ]
    return best_within(configurations, deadline_h=request.deadline_h, budget=request.budget)


def _inverse(values: Floats) -> Floats:
    with np.errstate(divide="ignore"):  # no seconds per byte: an infinite bandwidth
        inverse: Floats = 1 / values
    return inverse
