"""The plot of a prediction has points, extrapolation and limits."""

from __future__ import annotations

import pytest

from ddp_perf.scaling.plot import prediction_figure, write_prediction_plot
from ddp_perf.scaling.prediction import predict_all
from tests.unit.scaling.test_prediction import STEPS, STRONG, make_request, make_series


def panels(*series, **request):
    curves = list(series) or [make_series()]
    predictions = predict_all(curves, make_request(fit_world_sizes=(1, 2, 4), **request))
    return predictions, prediction_figure(predictions).axes


def line(axes, label):
    (found,) = (line for line in axes.lines if line.get_label().startswith(label))
    return found


def test_points_are_black_and_held_out_points_are_hollow():
    _, (axes,) = panels()

    fitted, held_out = line(axes, "published, fitted"), line(axes, "published, held out")
    assert list(fitted.get_xdata()) == [1, 2, 4]
    assert list(fitted.get_ydata()) == pytest.approx([n * STEPS[1] / STEPS[n] for n in (1, 2, 4)])
    assert list(held_out.get_xdata()) == [8]
    assert (fitted.get_markerfacecolor(), held_out.get_markerfacecolor()) == ("black", "white")


@pytest.mark.slow
def test_strong_scaling_is_drawn_as_the_ratio_of_steps():
    _, (axes,) = panels(STRONG)

    steps = [point.step_s for point in STRONG.points][:3]
    expected = [steps[0] / step for step in steps]
    assert list(line(axes, "published, fitted").get_ydata()) == pytest.approx(expected)
    assert axes.get_ylabel() == "speedup (strong scaling) against one rank"


def test_extrapolation_is_dashed_within_its_band():
    (prediction,), (axes,) = panels()

    dashed = line(axes, "extrapolated")
    assert dashed.get_linestyle() == "--"
    expected = [s.world_size * STEPS[1] / s.step_s.value for s in prediction.steps]
    assert list(dashed.get_ydata()) == pytest.approx(expected)
    assert len(axes.collections) == 1


def test_physical_limit_equals_the_number_of_ranks():
    _, (axes,) = panels()

    limit = line(axes, "physical limit")
    assert list(limit.get_xdata()) == list(limit.get_ydata()) == [1, 2, 4, 8, 16, 256]


def test_limit_of_a_rings_latency_is_drawn_if_visible():
    (prediction,), (axes,) = panels(make_series({n: 0.1 + 0.004 * (n - 1) for n in (1, 2, 4, 8)}))

    limit = line(axes, "limit of the latency of a ring")
    assert limit.get_ydata()[0] == prediction.speedup_limit["ring"].value


def test_curve_without_a_prediction_has_no_panel():
    _, axes = panels(make_series({1: 0.1}, where="x"), make_series())

    assert len(axes) == 1


def test_file_is_a_png(tmp_path):
    predictions, _ = panels()

    write_prediction_plot(tmp_path / "p.png", predictions)

    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
