"""Plots: each mark is at the place of its figure, and has a name."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import msgspec
import pytest

from ddp_perf.core.decomposition import TERMS
from ddp_perf.report.figures import REST, series_of
from ddp_perf.report.html.svg_plots import (
    Box,
    Stack,
    efficiency_bars,
    epoch_bars,
    launch_boxes,
    power_plot,
    rank_boxes,
    speedup_bars,
    step_plot,
    term_plot,
    throughput_plot,
)
from ddp_perf.report.rows import report_summary
from ddp_perf.selftest.trials import power_curve
from tests.builders import (
    make_cases,
    make_decomposition,
    make_environment,
    make_measurement,
    make_result,
)
from tests.reports import ONE, TWO, make_suite_result
from tests.unit.selftest.selftest_machine import Machine, make_request


def rows_of(result):
    return report_summary([result], complete=True).rows


def drawn(picture):
    return ElementTree.fromstring(picture)


def bars(root, class_="c0"):
    return [rect for rect in root.iter("rect") if rect.get("class") == class_]


def texts(root):
    return [found.text for found in root.iter("text")]


def test_a_plot_series_has_the_single_rank_run_and_the_same_work_on_more_ranks():
    result = make_suite_result()

    series = series_of(result, rows_of(result))

    assert [[row.ranks for row in one.rows] for one in series] == [[1, 2], [1, 2]]
    assert series[0].name == "mlp-ddp-fp32-b64"
    assert series[0].rows[0].case == ONE.id


def test_cases_that_share_a_batch_are_one_plot_series():
    cases = make_cases(world_sizes=[1, 2, 4], batch_sizes={"global": [64]})
    result = make_result([make_measurement(case, [0.01]) for case in cases])

    (series,) = series_of(result, rows_of(result))

    assert [row.ranks for row in series.rows] == [1, 2, 4]
    assert [(row.batch_size, row.global_batch) for row in series.rows] == [
        (64, 64),
        (32, 64),
        (16, 64),
    ]


def test_a_case_without_its_single_rank_run_has_no_plot_series():
    result = make_result([make_measurement(TWO, [0.01])])

    assert series_of(result, rows_of(result)) == []


def test_throughput_plot_shows_every_point_its_baseline_and_the_ideal():
    result = make_suite_result()
    root = drawn(throughput_plot(series_of(result, rows_of(result))[0]))

    assert [bar.find("title").text for bar in bars(root)] == [
        f"{ONE.id}: 6,400 samples/s",
        f"{TWO.id}: 8,533 samples/s",
    ]
    # 12.5 ms before: 10,240 a second, a tolerance of 5 % either way.
    assert bars(root, "band")[1].find("title").text == "baseline ± 5%: 9,752 to 10.8k"
    assert "ideal" in texts(root)
    assert {"samples a second", "ranks", "1", "2"} <= set(texts(root))


def test_figures_of_neighbouring_ranks_do_not_cover_each_other():
    result = make_suite_result()
    series = series_of(result, rows_of(result))[0]
    one, two = series.rows
    far = msgspec.structs.replace(two, ranks=16, throughput=99_000.0)
    root = drawn(throughput_plot(msgspec.structs.replace(series, rows=(one, two, far))))

    assert len(bars(root)) == 3  # each with its figure in a tip
    assert [text.text for text in root.iter("text") if text.get("class") == "value"] == [
        "8,533",
        "99k",
    ]


def test_bars_are_as_long_as_their_figures():
    rows = [row for row in rows_of(make_suite_result()) if row.efficiency is not None]
    wide = [msgspec.structs.replace(rows[0], efficiency=e, speedup=2 * e) for e in (0.4, 0.8)]

    short, long = bars(drawn(efficiency_bars(wide, ["a", "b"])))
    assert float(long.get("width")) == pytest.approx(2 * float(short.get("width")), abs=0.1)
    short, long = bars(drawn(speedup_bars(wide, ["a", "b"])))
    assert float(long.get("width")) == pytest.approx(2 * float(short.get("width")), abs=0.1)
    assert {"80%", "90%"} <= set(texts(drawn(efficiency_bars(wide, ["a", "b"]))))


def test_epoch_bars_show_seconds():
    row = msgspec.structs.replace(rows_of(make_suite_result())[0], epoch_s=1234.0)
    root = drawn(epoch_bars([row], ["a"]))

    assert len(bars(root)) == 1
    assert {"a", "1,234 s", "seconds an epoch"} <= set(texts(root))


def test_a_long_row_name_keeps_its_end():
    rows = [row for row in rows_of(make_suite_result()) if row.efficiency is not None][:1]

    shown = texts(drawn(efficiency_bars(rows, ["x" * 40 + "-ws2-b64"])))
    assert any(text.startswith("…") and text.endswith("xx-ws2-b64") for text in shown)


def test_launch_boxes_use_the_slowest_rank_and_rank_boxes_all_launches():
    steps = tuple(0.001 * (i + 1) for i in range(10))
    measurement = make_measurement(TWO, [steps, steps])

    launches, ranks = launch_boxes(measurement), rank_boxes(measurement)

    assert [box.name for box in launches] == ["launch 1", "launch 2"]
    assert [box.name for box in ranks] == ["rank 0", "rank 1"]
    assert launches[0].marks == pytest.approx((1.45, 3.25, 5.5, 7.75, 9.55))  # numpy's quantiles


def test_step_plot_draws_quantiles_in_order_and_names_the_baseline():
    root = drawn(step_plot([Box(name="launch 1", marks=(1, 2, 3, 4, 5))], "Steps", 2.5))
    paths = {path.get("class"): path.get("d") for path in root.iter("path")}

    (start, _, end) = (float(n) for n in re.findall(r"[\d.]+", paths["whisker"]))
    median = float(re.match(r"M([\d.]+)", paths["median"]).group(1))
    assert start < median < end
    assert median == pytest.approx((start + end) / 2, abs=0.2)
    assert "baseline" in texts(root)


def test_step_plot_accepts_equal_steps():
    root = drawn(step_plot([Box(name="launch 1", marks=(10,) * 5)], "Steps", None))

    assert "nan" not in ElementTree.tostring(root, encoding="unicode")


def test_term_plot_adds_up_to_the_timed_step_and_names_every_part():
    step = make_decomposition()  # 1 ms for each of eight terms
    root = drawn(term_plot([Stack(name="a", step=step, step_s=0.010)]))
    parts = list(root.iter("rect"))

    assert [rect.find("title").text for rect in parts] == [
        *(f"a: {term} 1.00 ms" for term in TERMS),
        f"a: {REST} 2.00 ms",
    ]
    assert "10 ms" in texts(root)


def test_term_plot_leaves_out_negative_terms():
    stack = Stack(name="a", step=make_decomposition(interference=-0.0005), step_s=0.001)

    assert set(stack.parts()) == {*TERMS} - {"interference"}


def test_power_plot_shows_each_point_with_its_count():
    launches = Machine().launches(15 + 35 * 8)
    curve = power_curve(make_request(), launches, make_environment())
    root = drawn(power_plot(curve))

    tips = [bar.find("title").text for bar in bars(root)]
    assert [tip.split(":")[0] for tip in tips] == [f"{p} % injected" for p in (0, 2, 3, 5, 10, 20)]
