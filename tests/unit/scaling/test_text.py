"""Predictions as text and as JSON."""

from __future__ import annotations

import json

import msgspec
import pytest

from ddp_perf.scaling.fit import parse_change
from ddp_perf.scaling.prediction import predict_all
from ddp_perf.scaling.text import prediction_json, prediction_text
from tests.unit.scaling.test_prediction import STRONG, make_request, make_series

SERIES = make_series()
CONTRADICTING = [
    make_series({1: 0.0076, 2: 0.0414}, batch_size=256),
    make_series({1: 0.09977, 2: 0.11424}, batch_size=4096),
]


def predictions(*series, **request):
    return predict_all(list(series) or [SERIES], make_request(**request))


def text(*series, **request):
    return prediction_text(predictions(*series, **request), 80)


def row(shown, ranks):
    return next(line.split() for line in shown.splitlines() if line.split()[:1] == [str(ranks)])


@pytest.mark.slow
def test_strong_scaling_is_named_with_the_compute_that_does_not_shrink():
    shown = text(STRONG)

    assert "strong scaling of one batch: α-β model" in shown
    assert "compute that does not shrink with the batch: " in shown
    assert "strong" not in text()
    assert "does not shrink" not in text()


def test_row_has_the_band_and_marks_held_out_sizes():
    shown = text(fit_world_sizes=(1, 2, 4))
    (prediction,) = predictions(fit_world_sizes=(1, 2, 4))
    step = next(step for step in prediction.steps if step.world_size == 8)

    fitted, held_out, asked = (row(shown, ranks) for ranks in (4, 8, 16))
    assert fitted[-2:] == ["116", "fit"]
    assert held_out[-2:] == ["120", f"{100 * step.held_out_error:+.1f}"]
    assert asked[-2:] == ["–", "–"]
    assert held_out[1:4] == [
        f"{1e3 * step.step_s.value:.3g}",
        f"{1e3 * step.step_s.low:.3g}–{1e3 * step.step_s.high:.3g}",
        f"{100 * step.step_s.half_width:.1f}",
    ]


def test_text_with_every_column_keeps_the_width():
    series = msgspec.structs.replace(SERIES, price_per_gpu_hour=3.0, unit="images")

    shown = text(series, world_sizes=(16, 32, 256, 1024, 16384), samples=1e9, deadline_h=100)

    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown.partition("Link as fitted")[0].partition("change")[0]
    assert "best within the limits: " in shown


def test_text_names_the_model_its_limits_and_amdahls_serial_fraction():
    shown = text()

    assert "α-β model of the step, fitted on 1, 2, 4, 8 ranks; all-reduce by ring" in shown
    assert "limit by ring: speedup never over" in shown
    assert "limit by tree: none" in shown
    assert "cross-check Amdahl: serial fraction" in shown


def test_refusal_replaces_all_figures():
    shown = text(*CONTRADICTING)

    assert shown.count("NOT PREDICTED: contradiction: 2 ranks exchange the same 100.7 MB") == 2
    assert "step" not in shown


def test_rows_that_were_left_out_are_listed():
    series = msgspec.structs.replace(SERIES, left_out=("4 GPUs: wrong",))

    assert "left out: 4 GPUs: wrong" in text(series)


def test_injected_slow_down_is_in_the_title():
    series = msgspec.structs.replace(SERIES, injections=("compute:20%",))

    assert text(series).startswith("t: ddp, batch 32 (published), slowed on purpose: compute:20%")


def test_changes_have_their_interval_and_their_term():
    shown = text(changes=(parse_change("bandwidth:10"), parse_change("batch:64")))

    (line,) = (line for line in shown.splitlines() if line.startswith("bandwidth:10"))
    assert line.split()[1] == "bandwidth"
    low, high = line.split()[2].split("…")
    assert 0 < float(low) < float(high)
    assert "modelled" in shown


def test_json_contains_every_figure_and_null_for_infinity():
    data = json.loads(prediction_json(predictions(fit_world_sizes=(1, 2, 4))))

    (prediction,) = data["predictions"]
    assert (data["schema_version"], data["confidence"]) == (1, 0.9)
    assert prediction["fitted"] == [1, 2, 4]
    assert prediction["speedup_limit"]["tree"]["value"] is None
    assert prediction["steps"][3]["given_s"] == 0.12
    assert prediction["gains"]["fp16"][0]["ratio"]["low"] == pytest.approx(1, abs=0.05)


def test_json_of_a_refusal_has_the_reason():
    one, _ = json.loads(prediction_json(predictions(*CONTRADICTING)))["predictions"]

    assert one["refusal"].startswith("contradiction: ")
    assert one["steps"] == []
