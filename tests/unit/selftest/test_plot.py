"""The plot: measured points with their figures, and modelled power as dashed lines."""

from __future__ import annotations

import struct

import pytest
from matplotlib.colors import to_rgba

from ddp_perf.selftest.plot import power_figure, write_power_plot
from ddp_perf.selftest.trials import power_curve
from tests.builders import make_case_baseline, make_environment, make_session
from tests.unit.selftest.selftest_machine import CASE, Machine, make_request

LONG = 15 + 35 * 8
SESSIONS = make_case_baseline(
    CASE,
    *(make_session([0.02 * level] * 3, day=day) for day, level in enumerate([1, 1.1, 0.9], 1)),
)


def curve_of(count=LONG, stored=SESSIONS):
    return power_curve(make_request(), Machine().launches(count), make_environment(), stored)


def axes_of(curve):
    (axes,) = power_figure(curve).axes
    return axes


def curves_drawn(axes):
    """Return the lines with more than two points."""
    return [line for line in axes.lines if len(line.get_xdata()) > 2]


def markers(axes):
    return {
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in axes.lines
        if line.get_marker() == "o"
    }


def test_every_modelled_line_is_dashed_and_labelled():
    axes = axes_of(curve_of())

    assert [line.get_linestyle() for line in curves_drawn(axes)] == ["--"] * 3
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "modelled: 5 launches, spread of this run",
        "modelled: 10 launches, spread of this run",
        "modelled: 5 launches, spread of the 3 stored sessions",
    ]


def test_a_dashed_line_is_the_power_of_its_model():
    curve = curve_of()
    line = curves_drawn(axes_of(curve))[0]

    at = 150
    assert line.get_ydata()[at] / 100 == pytest.approx(
        curve.modelled[0].power_at(line.get_xdata()[at] / 100)
    )


def test_every_point_is_at_its_observed_slow_down_with_its_counts():
    curve = curve_of()
    axes = axes_of(curve)

    assert markers(axes) == {
        (100 * (point.slow_down.value if point.slow_down else 0.0), 100 * point.found.value)
        for point in curve.points
    }
    texts = [text.get_text() for text in axes.texts]
    for point in curve.points:
        made_of = f"{point.percent} %\n{point.found.found} of {point.found.trials}"
        assert f"{made_of}\n{point.launches}" in texts


def test_the_error_bars_are_the_intervals():
    curve = curve_of()
    bars = [
        [tuple(100 * y for y in point.found.interval), point.slow_down] for point in curve.points
    ]
    drawn = {
        tuple(round(float(y), 6) for _, y in segment)
        for collection in axes_of(curve).collections
        for segment in collection.get_segments()
    }
    for (low, high), _ in bars:
        assert (round(low, 6), round(high, 6)) in drawn


def test_without_a_trial_the_plot_has_neither_point_nor_line():
    axes = axes_of(curve_of(count=3))

    assert markers(axes) == set()
    assert curves_drawn(axes) == []
    assert axes.get_title().startswith("Some Processor\nToo short: ")


def test_the_plot_is_a_png(tmp_path):
    path = tmp_path / "curve.png"

    write_power_plot(path, curve_of())

    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    assert width > 800
    assert height > 500
    assert [p.name for p in tmp_path.iterdir()] == ["curve.png"]


def test_points_are_black_and_lines_are_coloured():
    axes = axes_of(curve_of())

    points = {to_rgba(line.get_color()) for line in axes.lines if line.get_marker() == "o"}
    assert points == {to_rgba("black")}
    assert to_rgba("black") not in {to_rgba(line.get_color()) for line in curves_drawn(axes)}
