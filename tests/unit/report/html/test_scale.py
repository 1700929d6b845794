"""Scales: positions of figures, and round ticks within the scale."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.report.html.svg import Scale, coordinate


def test_a_scale_maps_its_ends_to_the_ends_of_the_page():
    scale = Scale(low=10, high=20, start=200, end=0)

    assert [scale(10), scale(15), scale(20)] == [200, 100, 0]


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (8, [0, 2, 4, 6, 8]),
        (30_000, [0, 10_000, 20_000, 30_000]),
    ],
)
def test_ticks_are_round(high, ticks):
    assert Scale(low=0, high=high, start=0, end=1).ticks() == pytest.approx(ticks)


@given(low=st.floats(-1e9, 1e9), span=st.floats(1e-6, 1e9))
def test_any_scale_has_a_few_ticks_within_it(low, span):
    scale = Scale(low=low, high=low + span, start=0, end=100)
    if scale.high - scale.low < 1e-6 * abs(low):
        return  # no two figures a reader could tell apart
    ticks = scale.ticks()

    assert 1 <= len(ticks) <= 6
    assert all(-0.1 <= scale(tick) <= 100.1 for tick in ticks)
    assert ticks == sorted(set(ticks))


def test_a_coordinate_has_no_trailing_zero():
    assert [coordinate(1.0), coordinate(1.04), coordinate(-2.26)] == ["1", "1", "-2.3"]
