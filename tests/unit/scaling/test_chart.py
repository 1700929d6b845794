"""The chart of a prediction has points, extrapolation and limits."""

from __future__ import annotations

import pytest

from ddp_perf.render.chart import image
from ddp_perf.scaling.chart import prediction_chart
from ddp_perf.scaling.prediction import predict_all
from tests.charts import drawn, words
from tests.unit.scaling.test_prediction import STEPS, STRONG, make_request, make_series


def chart_of(*series, **request):
    curves = list(series) or [make_series()]
    predictions = predict_all(curves, make_request(fit_world_sizes=(1, 2, 4), **request))
    return predictions, prediction_chart(predictions)


def line(chart, name):
    return [
        (ranks, speedup)
        for found, ranks, speedup in drawn(chart, "line", "ranks", "speed-up")
        if found.startswith(name)
    ]


def test_points_are_fitted_or_held_out():
    _, chart = chart_of()

    points = drawn(chart, "fitted", "ranks", "speed-up")
    assert points == [(n != 8, n, pytest.approx(n * STEPS[1] / STEPS[n])) for n in (1, 2, 4, 8)]


@pytest.mark.slow
def test_strong_scaling_is_drawn_as_the_ratio_of_steps():
    _, chart = chart_of(STRONG)

    steps = [point.step_s for point in STRONG.points][:3]
    found = [speedup for fitted, speedup in drawn(chart, "fitted", "speed-up") if fitted]
    assert found == pytest.approx([steps[0] / step for step in steps])
    assert b"speed-up (strong scaling) against one rank" in image(chart, ".svg")


def test_the_extrapolation_is_within_its_band_and_the_physical_limit_is_the_ranks():
    (prediction,), chart = chart_of()

    expected = [s.world_size * STEPS[1] / s.step_s.value for s in prediction.steps]
    assert [speedup for _, speedup in line(chart, "extrapolated")] == pytest.approx(expected)
    assert len(drawn(chart, "ranks", "low", "high")) == len(prediction.steps)
    assert line(chart, "only compute") == [(n, n) for n in (1, 2, 4, 8, 16, 256)]


def test_limit_of_a_rings_latency_is_drawn_if_visible():
    series = make_series({n: 0.1 + 0.004 * (n - 1) for n in (1, 2, 4, 8)})
    (prediction,), chart = chart_of(series)

    limits = {speedup for _, speedup in line(chart, "limit of the latency of a ring")}
    assert limits == {prediction.speedup_limit["ring"].value}


def test_curve_without_a_prediction_has_no_panel():
    _, chart = chart_of(make_series({1: 0.1}, where="x"), make_series())

    assert sum("hollow" in text for text in words(chart)) == 1
