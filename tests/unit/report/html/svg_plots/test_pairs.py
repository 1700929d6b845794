"""The plots of pairs: each mark is at the place of its figure, and a slow launch is visible."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from ddp_perf.core.verdict import DuelOutcome, PairedVerdict
from ddp_perf.report.html.svg_plots import (
    PlottedPair,
    line_plot,
    ratio_plot,
    slow_sides,
    step_curves,
)

STEADY = [PlottedPair(a=10.0, b=b, tip=f"B {b}") for b in (10.4, 10.6, 10.5, 10.5)]
SLOW = PlottedPair(a=10.0, b=19.0, tip="slow")


def verdict(*interval, apart=0):
    return PairedVerdict(
        outcome=DuelOutcome.UNDECIDED, reason="", pairs=4, interval=interval or None, apart=apart
    )


def drawn(picture):
    return ElementTree.fromstring(picture)


def tips(root, class_):
    return [found.find("title").text for found in root if found.get("class") == class_]


def height(root, tip):
    (found,) = [one for one in root.iter("rect") if tip in (one.findtext("title") or "")]
    return float(found.get("y")) + float(found.get("height")) / 2


def test_each_pair_is_at_its_ratio_in_order():
    root = drawn(ratio_plot(STEADY, 0.05, verdict(1.03, 1.07)))
    assert tips(root, "c0") == [
        "pair 1: +4.0 %, B 10.4",
        "pair 2: +6.0 %, B 10.6",
        "pair 3: +5.0 %, B 10.5",
        "pair 4: +5.0 %, B 10.5",
    ]
    first, second, third = (height(root, f"pair {number}:") for number in (1, 2, 3))
    assert (first + second) / 2 == pytest.approx(third, abs=0.2)
    assert height(root, "interval of the verdict: 1.030 to 1.070") == pytest.approx(third, abs=0.2)


def test_a_slow_launch_is_marked_and_lies_at_the_edge():
    root = drawn(ratio_plot([*STEADY, SLOW], 0.05, verdict()))
    (tip,) = tips(root, "c3")
    assert tip == "pair 5: +90.0 %, slow; slow: B"
    assert [one.tag for one in root if one.get("class") == "c3"] == ["path"]


def test_slow_sides_are_two_tolerances_above_their_median():
    both = PlottedPair(a=15.0, b=15.0, tip="")
    assert slow_sides([*STEADY, SLOW, both], 0.05) == ["", "", "", "", "B", "A and B"]


def test_a_single_pair_has_no_running_interval():
    assert "running" not in ratio_plot(STEADY[:1], 0.05, verdict())
    assert "running" in ratio_plot(STEADY[:2], 0.05, verdict())


def test_pairs_that_the_verdict_sets_apart_do_not_move_the_mean():
    pairs = [*STEADY, SLOW, *STEADY]
    with_it, without = (
        re.search(
            r'd="M[^"]*? ([\d.]+)" class="measured"', ratio_plot(pairs, 0.05, verdict(apart=n))
        )
        for n in (0, 1)
    )
    assert float(with_it.group(1)) < float(without.group(1)) - 3


def test_each_pair_is_a_line_from_a_to_b():
    root = drawn(line_plot([*STEADY, PlottedPair(a=10.0, b=9.0, tip="")], "ms", [10.1]))
    classes = [one.get("class") for one in root.iter("path")]
    assert classes.count("rising") == 4
    assert classes.count("falling") == 1
    assert {"A", "B", "A alone", "10", "10.5"} <= {one.text for one in root.iter("text")}


def test_the_curve_of_the_slower_side_is_at_the_right():
    a, b = [10.0 + 0.01 * i for i in range(50)], [11.0 + 0.01 * i for i in range(50)]
    root = drawn(step_curves(a, b))
    starts = {
        one.get("class"): float(re.match(r"M([\d.]+)", one.get("d")).group(1))
        for one in root.iter("path")
        if (one.get("class") or "").startswith("side-")
    }
    assert starts["side-a"] < starts["side-b"]


def test_equal_figures_have_an_axis():
    equal = [PlottedPair(a=10.0, b=10.0, tip="")] * 3
    for plot in (
        ratio_plot(equal, 0.05, verdict(1.0, 1.0)),
        line_plot(equal, "ms", []),
        step_curves([10.0] * 5, [10.0] * 5),
    ):
        assert "nan" not in plot
