"""Predictions as text and as JSON: the fit, the predicted steps, and their bands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.render.model import Table, figures, words
from ddp_perf.render.terminal import Block
from ddp_perf.render.units import ABSENT, layout_text, short_number, with_interval
from ddp_perf.scaling.curves import ScalingCurve
from ddp_perf.scaling.fit import Band, Gain
from ddp_perf.scaling.laws import BACKWARD_SHARE
from ddp_perf.scaling.prediction import CrossCheck, PredictedStep, Prediction
from ddp_perf.stats.hardware import Configuration

SCHEMA_VERSION = 1


class PredictionFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file of predictions for programs. Infinite values are null."""

    schema_version: int = SCHEMA_VERSION
    confidence: float = 0.9
    predictions: tuple[Prediction, ...]


def prediction_parts(predictions: Sequence[Prediction]) -> Iterator[Block]:
    """Yield, for each curve, a table of steps, the laws, and the gain of each change."""
    for one in predictions:
        yield ""
        yield from _series_parts(one)


def curve_title(curve: ScalingCurve) -> str:
    """Return the name of the curve and its source, and whether it was slowed on purpose."""
    title = f"{curve.where}: {curve.title} ({curve.source})"
    if curve.injections:
        title += f", slowed on purpose: {', '.join(curve.injections)}"
    return title


def _series_parts(prediction: Prediction) -> Iterator[Block]:
    yield curve_title(prediction.series)
    yield from (f"left out: {reason}" for reason in prediction.series.left_out)
    if prediction.refusal is not None:
        yield f"NOT PREDICTED: {prediction.refusal}"
        return
    yield _how(prediction)
    yield _steps_table(prediction)
    yield from (*_law_lines(prediction), *map(_sentence, prediction.notes))
    if prediction.gains:
        yield from (_gains_table(prediction), _gains_note(prediction))
    if prediction.best is not None:
        yield from ("", best_text(prediction.best))


def _how(prediction: Prediction) -> str:
    kind = "strong scaling of one batch: " if prediction.series.strong else ""
    sizes = ", ".join(map(str, prediction.fitted))
    laws = " or ".join(f"{name} {share:.0%}" for name, share in prediction.algorithms.items())
    return f"{kind}α-β model of the step, fitted on {sizes} ranks; all-reduce by {laws}"


def _steps_table(prediction: Prediction) -> Table:
    priced = any(step.cost is not None for step in prediction.steps)
    titles = (
        "step ms",
        "90 % band ms",
        "± %",
        f"{prediction.series.unit} /s",
        "effi\u00adciency %",
        "la\u00adtency ms",
        "band\u00adwidth ms",
        "given ms",
        "off %",
        *(["cost a M"] if priced else []),
    )
    rows = []
    for step in prediction.steps:
        cost = [f"{step.cost.per_million:.3g}" if step.cost else ABSENT] if priced else []
        rows.append([*_step_row(step, prediction.gpus_per_node), *cost])
    return Table.of_texts((*words("ranks"), *figures(*titles)), rows)


def _step_row(step: PredictedStep, gpus_per_node: int | None) -> list[str]:
    band, error = step.step_s, step.held_out_error
    off = ABSENT if error is None else f"{100 * error:+.1f}"
    return [
        layout_text(step.world_size, gpus_per_node),
        _ms(band.value),
        f"{_ms(band.low)}–{_ms(band.high)}",
        f"{100 * band.half_width:.1f}",
        f"{step.throughput.value:.0f}" if step.throughput else ABSENT,
        f"{100 * step.efficiency.value:.0f}",
        _ms(step.parts["latency"]),
        _ms(step.parts["bandwidth"]),
        _ms(step.given_s) if step.given_s is not None else ABSENT,
        "fit" if step.fitted else off,
    ]


def _law_lines(prediction: Prediction) -> list[str]:
    lines = [_link_line(prediction)]
    if (fixed := prediction.fixed_compute) is not None:
        share = with_interval(fixed, 100, "%")
        lines.append(f"compute that does not shrink with the batch: {share} of a step of one rank")
    for name, limit in prediction.speedup_limit.items():
        lines.append(f"limit by {name}: {_limit_text('speedup never over', limit)}")
    lines += [_cross_check_line(check) for check in prediction.cross_checks]
    return [
        *lines,
        f"Latency and bandwidth are means. The step is compute plus the part of them that compute"
        f" cannot hide (at most {BACKWARD_SHARE:.0%} of compute, a backward, can hide it). Given"
        " ranks that are not fitted are held out.",
    ]


def _link_line(prediction: Prediction) -> str:
    link = prediction.link
    assert link is not None  # there is a prediction
    latency = f"latency of a message {with_interval(link.latency_s, 1e6, 'µs')}"
    if link.bytes_per_s is None:
        return f"link as fitted: {latency}, of all buckets together"
    return f"link as fitted: {latency}, bandwidth {with_interval(link.bytes_per_s, 1e-9, 'GB/s')}"


def _cross_check_line(check: CrossCheck) -> str:
    parameters = ", ".join(
        f"{name} {with_interval(band, 100, '%')}" for name, band in check.parameters.items()
    )
    steps = ", ".join(f"{n}: {_ms(band.low)}–{_ms(band.high)}" for n, band in check.step_s.items())
    return (
        f"cross-check {check.law}: {parameters}; {_limit_text(check.implied, check.limit)}."
        f" Steps in ms by ranks: {steps}"
    )


def _limit_text(what: str, limit: Band) -> str:
    if math.isinf(limit.value):
        if math.isinf(limit.low):
            return "none"
        return f"none (or, at worst, {what} {short_number(limit.low)})"
    high = "none" if math.isinf(limit.high) else short_number(limit.high)
    return f"{what} {short_number(limit.value)} ({short_number(limit.low)} to {high})"


def _gains_table(prediction: Prediction) -> Table:
    sizes = [f"{gain.world_size} %" for gain in next(iter(prediction.gains.values()))]
    return Table.of_texts(
        (*words("change", "main term"), *figures(*sizes)),
        ((text, _sources(gains), *map(_gain, gains)) for text, gains in prediction.gains.items()),
    )


def _sources(gains: Sequence[Gain]) -> str:
    """Return the terms of the gains, in order of their first appearance."""
    return ", ".join(dict.fromkeys(gain.term for gain in gains))


def _gain(gain: Gain) -> str:
    low, high = (100 * (end - 1) for end in (gain.ratio.low, gain.ratio.high))
    return f"{low:+.0f}…{high:+.0f}"


def _gains_note(prediction: Prediction) -> str:
    reasons = [f"{text}: {reason}" for text, reason in prediction.not_gained.items()]
    return ". ".join(
        [
            "Change of the throughput by ranks, 90 % interval; modelled, with compute proportional"
            " to the samples",
            *reasons,
        ]
    )


def best_text(best: Configuration) -> str:
    """Return one line with the best configuration, its hours and its cost."""
    return (
        f"best within the limits: {best.world_size} GPUs, {best.hours:,.1f} h,"
        f" cost {best.cost:,.2f} (by the slow end of its band)"
    )


def _ms(seconds: float) -> str:
    return short_number(1e3 * seconds)


def _sentence(note: str) -> str:
    return f"{note[0].upper()}{note[1:]}."
