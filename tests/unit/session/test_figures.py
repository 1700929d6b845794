"""The figures of a case are medians over its launches, with scaling if one rank was measured."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import Unit
from ddp_perf.session.figures import case_figures
from tests.builders import make_cases, make_measurement, make_result

ONE, TWO = make_cases()


def test_figures_are_medians_over_the_launches():
    result = make_result([make_measurement(ONE, [0.01, 0.02, 0.5])])

    figures = case_figures(result, ONE.id)

    assert figures.step_s == figures.p95_step_s == 0.02
    assert figures.throughput == pytest.approx(64 / 0.02)
    assert figures.scaling is None


def test_throughput_has_the_unit_of_the_workload():
    unit = Unit(name="tokens", per_sample=512)
    figures = case_figures(make_result([make_measurement(ONE, [0.01], unit=unit)]), ONE.id)

    assert figures.unit == "tokens"
    assert figures.throughput == pytest.approx(512 * 64 / 0.01)


def test_two_ranks_are_compared_with_one():
    result = make_result([make_measurement(ONE, [0.01] * 3), make_measurement(TWO, [0.0125] * 3)])

    scaling = case_figures(result, TWO.id).scaling

    assert scaling.speedup == pytest.approx(1.6)
    assert scaling.efficiency == pytest.approx(0.8)
    assert scaling.overhead_s == pytest.approx(0.0025)


def test_efficiency_and_overhead_are_of_the_mean_step():
    """One step in ten stalls: the median step of both cases is the same."""
    stalled = (0.01,) * 9 + (0.11,)
    result = make_result([make_measurement(ONE, [0.01]), make_measurement(TWO, [stalled])])

    scaling = case_figures(result, TWO.id).scaling

    assert scaling.efficiency == pytest.approx(0.5)
    assert scaling.overhead_fraction == pytest.approx(0.5)
    assert scaling.overhead_s == pytest.approx(0.01)


def test_two_ranks_that_share_a_batch_are_compared_with_half_of_a_step():
    one, two = make_cases(batch_sizes={"global": [64]})
    result = make_result([make_measurement(one, [0.01] * 3), make_measurement(two, [0.008] * 3)])

    scaling = case_figures(result, two.id).scaling

    assert scaling.speedup == pytest.approx(1.25)
    assert scaling.efficiency == pytest.approx(0.625)
    assert scaling.overhead_s == pytest.approx(0.003)


@pytest.mark.parametrize("others", [[], [make_measurement(ONE, [])]], ids=["absent", "failed"])
def test_a_case_without_a_single_rank_case_has_no_scaling(others):
    result = make_result([*others, make_measurement(TWO, [0.01])])

    assert case_figures(result, TWO.id).scaling is None


def test_a_case_without_a_launch_has_no_figures():
    assert case_figures(make_result([make_measurement(ONE, [])]), ONE.id) is None
