"""Predictions as text and as JSON."""

from __future__ import annotations

import json

import msgspec
import pytest

from ddp_perf.render.terminal import text_of
from ddp_perf.render.units import to_json
from ddp_perf.scaling.fit import parse_change
from ddp_perf.scaling.prediction import predict_all
from ddp_perf.scaling.text import prediction_parts
from tests.unit.scaling.test_prediction import STRONG, make_request, make_series

SERIES = make_series()
CONTRADICTING = [
    make_series({1: 0.0076, 2: 0.0414}, batch_size=256),
    make_series({1: 0.09977, 2: 0.11424}, batch_size=4096),
]


def predictions(*series, **request):
    return predict_all(list(series) or [SERIES], make_request(**request))


def text(*series, **request):
    return text_of(prediction_parts(predictions(*series, **request)), 80)


@pytest.mark.slow
def test_strong_scaling_is_named_with_the_compute_that_does_not_shrink():
    shown = text(STRONG)

    assert "strong scaling of one batch: α-β model" in shown
    assert "compute that does not shrink with the batch: " in shown
    assert "strong" not in text()
    assert "does not shrink" not in text()


def test_the_text_of_a_prediction_has_every_column_within_the_width(file_regression):
    series = msgspec.structs.replace(
        SERIES,
        price_per_gpu_hour=3.0,
        unit="images",
        left_out=("4 GPUs: wrong",),
        injections=("compute:20%",),
    )

    shown = text(
        series,
        world_sizes=(16, 32, 256, 1024),
        fit_world_sizes=(1, 2, 4),
        changes=(parse_change("bandwidth:10"), parse_change("batch:64")),
        samples=1e9,
        deadline_h=100,
    )

    assert max(map(len, shown.splitlines())) <= 80
    file_regression.check(shown, extension=".txt", encoding="utf-8")


def test_refusal_replaces_all_figures():
    shown = text(*CONTRADICTING)

    assert shown.count("NOT PREDICTED: contradiction: 2 ranks exchange the same 100.7 MB") == 2
    assert "step" not in shown


def test_json_contains_every_figure_and_null_for_infinity():
    (prediction,) = json.loads(to_json(predictions(fit_world_sizes=(1, 2, 4))))

    assert prediction["fitted"] == [1, 2, 4]
    assert prediction["speedup_limit"]["tree"]["value"] is None
    assert prediction["steps"][3]["given_s"] == 0.12
    assert prediction["gains"]["fp16"][0]["ratio"]["low"] == pytest.approx(1, abs=0.05)


def test_json_of_a_refusal_has_the_reason():
    one, _ = json.loads(to_json(predictions(*CONTRADICTING)))

    assert one["refusal"].startswith("contradiction: ")
    assert one["steps"] == []
