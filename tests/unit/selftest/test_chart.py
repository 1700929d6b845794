"""The chart of a power curve: measured points with their counts and intervals."""

from __future__ import annotations

import pytest

from ddp_perf.render.chart import image
from ddp_perf.selftest.chart import power_chart
from ddp_perf.selftest.trials import power_curve
from tests.builders import make_environment
from tests.charts import drawn, words
from tests.unit.selftest.selftest_machine import Machine, make_request

LONG = 15 + 35 * 8


def curve_of(count=LONG):
    return power_curve(make_request(), Machine().launches(count), make_environment())


def test_every_point_is_at_its_observed_slow_down_with_its_counts_and_intervals():
    curve = curve_of()

    figures = drawn(power_chart(curve), "slow-down", "found", "least", "most", "trials")

    assert figures == [
        (
            pytest.approx(100 * point.slow_down.value if point.slow_down else 0.0),
            100 * point.found.value,
            *(100 * end for end in point.found.interval),
            f"{point.found.found} of {point.found.trials} found",
        )
        for point in curve.points
    ]
    assert b"observed slow-down, %" in image(power_chart(curve), ".svg")


def test_without_a_trial_the_chart_has_no_point():
    chart = power_chart(curve_of(count=3))

    assert drawn(chart, "found") == []
    title, conclusion, *_ = words(chart)
    assert title.endswith("on Some Processor")
    assert conclusion.startswith("Too short: ")
