"""The charts of pairs: each mark is at the place of its figure, and a slow launch is visible."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import DuelOutcome, PairedVerdict
from ddp_perf.render.chart import image
from ddp_perf.report.duel.charts import (
    PlottedPair,
    pair_chart,
    ratio_chart,
    slow_sides,
    step_curves,
)
from tests.charts import drawn

STEADY = [PlottedPair(a=10.0, b=b, first="A") for b in (10.4, 10.6, 10.5, 10.5)]
SLOW = PlottedPair(a=10.0, b=19.0, first="A")


def verdict(*interval, apart=0):
    return PairedVerdict(
        outcome=DuelOutcome.UNDECIDED, reason="", pairs=4, interval=interval or None, apart=apart
    )


def test_each_pair_is_at_its_ratio_in_order():
    chart = ratio_chart(STEADY, 0.05, verdict(1.03, 1.07))

    assert drawn(chart, "pair", "shown") == [
        (number, pytest.approx(percent)) for number, percent in enumerate((4, 6, 5, 5), 1)
    ]
    assert drawn(chart, "pair", "B against A", "B", "slow")[1] == (
        2,
        "+6.0 %",
        "10.6 ms",
        "neither",
    )
    assert drawn(chart, "low", "high")[0] == (-5, 5)  # the tolerance
    assert drawn(chart, "low", "high")[-1] == (pytest.approx(3), pytest.approx(7))


def test_a_slow_launch_is_marked_and_lies_at_the_edge():
    chart = ratio_chart([*STEADY, SLOW], 0.05, verdict())

    *steady, slow = drawn(chart, "B against A", "slow", "beyond", "shown")
    assert {one[1:3] for one in steady} == {("neither", "no")}
    assert slow[:3] == ("+90.0 %", "B", "up")
    assert slow[3] < 90


def test_slow_sides_are_two_tolerances_above_their_median():
    both = PlottedPair(a=15.0, b=15.0, first="A")
    assert slow_sides([*STEADY, SLOW, both], 0.05) == ["", "", "", "", "B", "A and B"]


def test_a_single_pair_has_no_running_interval():
    assert drawn(ratio_chart(STEADY[:1], 0.05, verdict()), "mean") == []
    assert len(drawn(ratio_chart(STEADY[:2], 0.05, verdict()), "mean")) == 1


def test_pairs_that_the_verdict_sets_apart_do_not_move_the_mean():
    pairs = [*STEADY, SLOW, *STEADY]
    with_it, without = (
        drawn(ratio_chart(pairs, 0.05, verdict(apart=n)), "mean")[-1][0] for n in (0, 1)
    )
    assert with_it > without + 3


def test_each_pair_is_a_line_from_a_to_b():
    chart = pair_chart([*STEADY, PlottedPair(a=10.0, b=9.0, first="B")], [10.1])

    lines = drawn(chart, "pair", "side", "ms", "grew")
    assert lines[:2] == [(1, "A", 10.0, True), (1, "B", 10.4, True)]
    assert lines[-1] == (5, "B", 9.0, False)
    assert drawn(chart, "side", "text") == [("A", "10"), ("B", "10.5")]
    assert ("A alone", 10.1) in drawn(chart, "side", "ms")


def test_the_curve_of_the_slower_side_is_at_the_right():
    a, b = [10.0 + 0.01 * i for i in range(50)], [11.0 + 0.01 * i for i in range(50)]

    curves = drawn(step_curves(a, b), "share", "side", "ms")

    at_half = {side: ms for share, side, ms in curves if share == pytest.approx(0.5, abs=0.01)}
    assert at_half["B"] == pytest.approx(at_half["A"] + 1.0)


def test_equal_figures_have_an_axis():
    equal = [PlottedPair(a=10.0, b=10.0, first="A")] * 3
    for chart in (
        ratio_chart(equal, 0.05, verdict(1.0, 1.0)),
        pair_chart(equal, []),
        step_curves([10.0] * 5, [10.0] * 5),
    ):
        assert b"NaN" not in image(chart, ".svg")
