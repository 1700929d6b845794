"""The plots for papers and slides: what is drawn, and which files there are."""

from __future__ import annotations

import numpy as np
import pytest

from ddp_perf.report.figures import series_of
from ddp_perf.report.files.plots import epoch_figure, plot_files, throughput_figure
from ddp_perf.report.rows import report_summary
from tests.builders import make_cases, make_collectives, make_measurement, make_result

EPOCH = 12_800


def result_of(cases, **changes):
    """Return a suite in which two ranks take 12 ms for 10 ms of one, and so on."""
    steps = {case.id: 0.010 + 0.002 * (case.world_size - 1) for case in cases}
    launches = (1.0, 1.1, 0.9)
    measured = [make_measurement(c, [steps[c.id] * factor for factor in launches]) for c in cases]
    return make_result(measured, **changes)


def rows_of(result):
    return report_summary([result], complete=True).rows


def drawn_of(result):
    """Return the SVG of each plot by name."""
    files = dict(plot_files(result, rows_of(result)))
    return {name: data.decode() for name, data in files.items() if name.endswith(".svg")}


def lines_of(figure):
    """Return the points of each dashed line that has any, and of each curve by its name."""
    (axes,) = figure.axes
    dashed = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata())]
    curves = {bars.get_label(): bars[0] for bars in axes.containers}
    return dashed, {name: list(zip(*line.get_data(), strict=True)) for name, line in curves.items()}


def test_throughput_is_drawn_against_ranks_with_the_ideal_of_each_curve():
    result = result_of(make_cases(world_sizes=[1, 2, 4], batch_sizes=[64, 128]))

    figure = throughput_figure(series_of(result, rows_of(result)), "samples a second")
    ideals, curves = lines_of(figure)

    assert curves["b64"] == [
        (1, pytest.approx(6_400)),
        (2, pytest.approx(2 * 64 / 0.012)),
        (4, pytest.approx(4 * 64 / 0.016)),
    ]
    assert [(line.get_xdata()[-1], line.get_ydata()[-1]) for line in ideals] == [
        (4, pytest.approx(4 * 6_400)),
        (4, pytest.approx(4 * 12_800)),
    ]
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("ranks", "samples a second")
    entries = [text.get_text() for text in axes.get_legend().get_texts()]
    assert entries == ["ideal, from one rank", "b64", "b128"]


def test_curves_of_one_single_rank_run_share_its_ideal():
    hooks = [{"kind": "fp16"}, {"kind": "bf16"}]
    result = result_of(make_cases(comm_hooks=hooks))

    ideals, curves = lines_of(throughput_figure(series_of(result, rows_of(result)), ""))

    assert (len(ideals), len(curves)) == (1, 2)


def test_the_time_of_an_epoch_falls_with_the_ranks_and_so_does_its_ideal():
    result = result_of(make_cases(epoch_samples=EPOCH))

    ideals, curves = lines_of(epoch_figure(series_of(result, rows_of(result)), ""))

    assert list(curves.values()) == [[(1, pytest.approx(2.0)), (2, pytest.approx(1.2))]]
    assert ideals[0].get_ydata()[-1] == pytest.approx(1.0)


def test_the_bars_of_a_point_reach_from_the_slowest_to_the_fastest_launch():
    result = result_of(make_cases())

    (axes,) = throughput_figure(series_of(result, rows_of(result)), "").axes

    low, high = np.asarray(axes.collections[0].get_paths()[0].vertices)[:, 1]  # of one rank
    assert (low, high) == (pytest.approx(6_400 / 1.1), pytest.approx(6_400 / 0.9))


def test_every_plot_states_what_it_shows_and_where_it_was_measured():
    drawn = drawn_of(result_of(make_cases(epoch_samples=EPOCH)))

    assert drawn.keys() == {
        "throughput.svg",
        "speedup_efficiency.svg",
        "epoch_time_detailed.svg",
    }
    source = "Some Processor, 2026-01-02, commit 0123456789ab; median of 3 launches of each case"
    for svg, what in zip(
        drawn.values(), ("throughput", "speed-up and efficiency", "time of an epoch"), strict=True
    ):
        assert f"quick: {what}<" in svg
        assert source in svg
    assert "good: 70<" in drawn["speedup_efficiency.svg"]
    assert drawn["speedup_efficiency.svg"].count(">ideal<") == 2


def test_a_slowed_session_is_marked():
    drawn = drawn_of(result_of(make_cases(), injections=("compute:5%",)))

    assert "quick, slowed on purpose: throughput<" in drawn["throughput.svg"]


@pytest.mark.parametrize(
    ("cases", "shown"),
    [(make_cases(world_sizes=[2]), "10.7k"), (make_collectives()[:1], "all_reduce")],
    ids=["one world size", "collectives"],
)
def test_cases_without_a_curve_are_bars(cases, shown):
    drawn = drawn_of(result_of(cases))

    assert drawn.keys() == {"throughput.svg"}
    assert shown in drawn["throughput.svg"]
    assert "ideal" not in drawn["throughput.svg"]
