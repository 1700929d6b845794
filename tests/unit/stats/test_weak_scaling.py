"""Scaling by its definitions, on the published MLP experiment (two V100-PCIE-16GB)."""

from __future__ import annotations

import pytest

from ddp_perf.stats.weak_scaling import weak_scaling


@pytest.mark.parametrize(
    ("two", "one", "speedup", "efficiency", "overhead_ms", "fraction"),
    [
        pytest.param((12_369, 41.40), (33_700, 7.60), 0.37, 0.18, 33.80, 0.816, id="batch 256"),
        pytest.param((71_710, 114.24), (41_052, 99.77), 1.75, 0.87, 14.47, 0.127, id="batch 4096"),
    ],
)
def test_weak_scaling_gives_the_published_figures(
    two, one, speedup, efficiency, overhead_ms, fraction
):
    scaling = weak_scaling(
        world_size=2,
        throughput=two[0],
        single_throughput=one[0],
        step_s=two[1] / 1e3,
        single_s=one[1] / 1e3,
    )

    assert scaling.speedup == pytest.approx(speedup, abs=0.005)
    assert scaling.efficiency == pytest.approx(efficiency, abs=0.005)
    assert scaling.overhead_s * 1e3 == pytest.approx(overhead_ms)
    assert scaling.overhead_fraction == pytest.approx(fraction, abs=0.001)


def test_ideal_scaling_has_no_overhead():
    scaling = weak_scaling(
        world_size=8, throughput=800, single_throughput=100, step_s=0.1, single_s=0.1
    )

    assert (scaling.speedup, scaling.efficiency) == (8, 1)
    assert (scaling.overhead_s, scaling.overhead_fraction) == (0, 0)
