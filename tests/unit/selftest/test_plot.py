"""The plot: measured points with their figures and intervals."""

from __future__ import annotations

import struct

from ddp_perf.selftest.plot import power_figure, write_power_plot
from ddp_perf.selftest.trials import power_curve
from tests.builders import make_environment
from tests.unit.selftest.selftest_machine import Machine, make_request

LONG = 15 + 35 * 8


def curve_of(count=LONG):
    return power_curve(make_request(), Machine().launches(count), make_environment())


def axes_of(curve):
    (axes,) = power_figure(curve).axes
    return axes


def markers(axes):
    return {
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in axes.lines
        if line.get_marker() == "o"
    }


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


def test_without_a_trial_the_plot_has_no_point():
    axes = axes_of(curve_of(count=3))

    assert markers(axes) == set()
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
