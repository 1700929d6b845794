"""The charts of a session: each figure is at its place."""

from __future__ import annotations

import numpy as np
import pytest

from ddp_perf.core.decomposition import TERMS
from ddp_perf.render.chart import image
from ddp_perf.report.charts import Stack, launches_chart, scaling_charts, step_charts, term_chart
from ddp_perf.report.figures import REST, series_of
from ddp_perf.report.rows import report_summary
from tests.builders import (
    make_cases,
    make_collectives,
    make_decomposition,
    make_measurement,
    make_result,
)
from tests.charts import drawn, words
from tests.reports import ONE, TWO, make_suite_result

EPOCH = 12_800
SOURCE = "Some Processor, 2026-01-02, commit 0123456789ab; median of 3 launches of each case"


def result_of(cases, **changes):
    """Return a suite in which two ranks take 12 ms for 10 ms of one, and so on."""
    steps = {case.id: 0.010 + 0.002 * (case.world_size - 1) for case in cases}
    launches = (1.0, 1.1, 0.9)
    measured = [make_measurement(c, [steps[c.id] * factor for factor in launches]) for c in cases]
    return make_result(measured, **changes)


def rows_of(result):
    return report_summary([result], complete=True).rows


def charts_of(result):
    return dict(scaling_charts(result, rows_of(result)))


def test_a_series_has_the_single_rank_run_and_the_same_work_on_more_ranks():
    result = make_suite_result()

    series = series_of(result, rows_of(result))

    assert [[row.ranks for row in one.rows] for one in series] == [[1, 2], [1, 2]]
    assert series[0].name == "mlp-ddp-fp32-b64"
    assert series[0].rows[0].case == ONE.id


def test_cases_that_share_a_batch_are_one_series():
    cases = make_cases(world_sizes=[1, 2, 4], batch_sizes={"global": [64]})
    result = make_result([make_measurement(case, [0.01]) for case in cases])

    (series,) = series_of(result, rows_of(result))

    assert [(row.ranks, row.batch_size, row.global_batch) for row in series.rows] == [
        (1, 64, 64),
        (2, 32, 64),
        (4, 16, 64),
    ]


def test_a_case_without_its_single_rank_run_has_no_series():
    result = make_result([make_measurement(TWO, [0.01])])

    assert series_of(result, rows_of(result)) == []


def test_throughput_is_drawn_against_ranks_with_the_ideal_of_each_curve():
    chart = charts_of(result_of(make_cases(world_sizes=[1, 2, 4], batch_sizes=[64, 128])))[
        "throughput"
    ]

    figures = drawn(chart, "curve", "ranks", "value", "ideal")
    assert figures[:3] == [
        ("b64", 1, pytest.approx(6_400), pytest.approx(6_400)),
        ("b64", 2, pytest.approx(2 * 64 / 0.012), pytest.approx(12_800)),
        ("b64", 4, pytest.approx(4 * 64 / 0.016), pytest.approx(25_600)),
    ]
    assert {curve for curve, *_ in figures} == {"b64", "b128"}
    assert drawn(chart, "ranks", "slowest", "fastest")[0] == (
        1,
        pytest.approx(6_400 / 1.1),
        pytest.approx(6_400 / 0.9),
    )


def test_the_baseline_is_drawn_with_its_tolerance():
    chart = charts_of(make_suite_result())["throughput"]

    # 12.5 ms before: 10,240 a second, a tolerance of 5 % either way.
    figures = {case: (low, high) for case, low, high in drawn(chart, "case", "low", "high")}
    assert figures[TWO.id] == (pytest.approx(10_240 / 1.05), pytest.approx(10_240 / 0.95))


def test_curves_of_one_single_rank_run_share_its_ideal():
    chart = charts_of(result_of(make_cases(comm_hooks=[{"kind": "fp16"}, {"kind": "bf16"}])))

    figures = drawn(chart["throughput"], "case", "ranks", "value")
    ideals = [case for case, ranks, _ in figures if ranks == 2 and case.startswith("mlp-none")]
    assert len(ideals) == 1


def test_the_time_of_an_epoch_falls_with_the_ranks_and_so_does_its_ideal():
    chart = charts_of(result_of(make_cases(epoch_samples=EPOCH)))["epoch_time_detailed"]

    assert drawn(chart, "ranks", "value", "ideal") == [
        (1, pytest.approx(2.0), pytest.approx(2.0)),
        (2, pytest.approx(1.2), pytest.approx(1.0)),
    ]


def test_every_chart_states_what_it_shows_and_where_it_was_measured():
    charts = charts_of(result_of(make_cases(epoch_samples=EPOCH)))

    assert charts.keys() == {"throughput", "speedup_efficiency", "epoch_time_detailed"}
    titles = ("Throughput", "Speed-up", "Time of an epoch, computed")
    for chart, title in zip(charts.values(), titles, strict=True):
        assert f"quick: {title}" in words(chart)
        assert SOURCE in words(chart)


def test_a_slowed_session_is_marked():
    charts = charts_of(result_of(make_cases(), injections=("compute:5%",)))

    assert words(charts["throughput"])[0] == "quick, slowed on purpose: Throughput"


@pytest.mark.parametrize(
    ("cases", "shown"),
    [(make_cases(world_sizes=[2]), "10.7k"), (make_collectives()[:1], "1.71M")],
    ids=["one world size", "collectives"],
)
def test_cases_without_a_curve_are_bars(cases, shown):
    charts = charts_of(result_of(cases))

    assert charts.keys() == {"throughput"}
    ((text,),) = drawn(charts["throughput"], "text")
    assert text == shown
    assert not drawn(charts["throughput"], "ideal")


def test_efficiency_and_speed_up_are_bars_with_their_ideal():
    chart = charts_of(result_of(make_cases(world_sizes=[1, 2])))["speedup_efficiency"]

    assert drawn(chart, "value", "text") == [
        (pytest.approx(2 / 1.2), "1.67 ×"),
        (pytest.approx(100 / 1.2), "83 %"),
    ]
    assert drawn(chart, "ideal") == [(2,)]
    assert drawn(chart, "x", "name") == [(70.0, "good"), (100, "ideal")]


def test_launches_use_the_slowest_rank_and_ranks_all_launches():
    steps = tuple(0.001 * (i + 1) for i in range(10))

    launches, ranks = step_charts(make_measurement(TWO, [steps, steps]), 0.0025)

    quantiles = drawn(launches, "name", "low", "lower", "median", "upper", "high")
    assert [name for name, *_ in quantiles] == ["launch 1", "launch 2"]
    assert quantiles[0][1:] == pytest.approx((1.45, 3.25, 5.5, 7.75, 9.55))  # numpy's quantiles
    assert drawn(launches, "x", "name") == [(2.5, "baseline")]
    assert [name for name, _ in drawn(ranks, "name", "steps")] == ["rank 0", "rank 1"]
    assert [n for _, n in drawn(ranks, "name", "steps")] == [20, 20]


def test_each_launch_is_drawn_against_its_baseline_or_its_own_median():
    result = make_suite_result()

    chart = launches_chart(result, rows_of(result))

    changes = {}
    for name, change in drawn(chart, "name", "change"):
        changes.setdefault(name, []).append(change)
    assert np.median(changes["ddp-ws2-b64"]) == pytest.approx(0.2)  # 15 ms for 12.5 ms
    assert np.median(changes["none-ws1-b128"]) == 0  # no baseline
    assert {(low, high) for low, high in drawn(chart, "low", "high")} == {(-0.05, 0.05)}


def test_without_a_launch_there_is_no_chart_of_launches():
    result = make_result([make_measurement(ONE, [])])

    assert launches_chart(result, rows_of(result)) is None


def test_the_terms_add_up_to_the_timed_step_without_those_below_0():
    whole = Stack(name="a", step=make_decomposition(), step_s=0.010)  # 1 ms for each of eight
    below = Stack(name="b", step=make_decomposition(interference=-0.0005), step_s=0.001)

    terms = drawn(term_chart([whole, below]), "name", "term", "ms")

    expected = {("a", term): pytest.approx(1.0) for term in TERMS} | {("a", REST): 2.0}
    found = {(name, term): ms for name, term, ms in terms}
    assert {key: ms for key, ms in found.items() if key[0] == "a"} == pytest.approx(expected)
    assert {term for name, term in found if name == "b"} == {*TERMS} - {"interference"}
    assert drawn(term_chart([whole]), "text", "end") == [("10.00 ms", pytest.approx(10.0))]


def test_a_chart_is_drawn_as_png_and_as_svg():
    chart = charts_of(result_of(make_cases()))["speedup_efficiency"]

    assert image(chart, ".png").startswith(b"\x89PNG")
    svg = image(chart, ".svg").decode()
    assert svg.startswith("<svg")
    for text in ("quick: Speed-up", "quick: Efficiency", "83 %", "good"):
        assert text in svg
