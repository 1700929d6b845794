"""Scaling by its definitions, on the published MLP experiment (two V100-PCIE-16GB)."""

from __future__ import annotations

import pytest

from ddp_perf.stats.summary import ideal_share, scaling_of


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
    scaling = scaling_of(
        world_size=2,
        throughput=two[0],
        single_throughput=one[0],
        step_s=two[1] / 1e3,
        single_s=one[1] / 1e3,
        ideal_share=ideal_share(world_size=2, samples=512, single_samples=256),
    )

    assert scaling.speedup == pytest.approx(speedup, abs=0.005)
    assert scaling.efficiency == pytest.approx(efficiency, abs=0.005)
    assert scaling.overhead_s * 1e3 == pytest.approx(overhead_ms)
    assert scaling.overhead_fraction == pytest.approx(fraction, abs=0.001)


def test_ideal_scaling_has_no_overhead():
    scaling = scaling_of(
        world_size=8,
        throughput=800,
        single_throughput=100,
        step_s=0.1,
        single_s=0.1,
        ideal_share=1.0,
    )

    assert (scaling.speedup, scaling.efficiency) == (8, 1)
    assert (scaling.overhead_s, scaling.overhead_fraction) == (0, 0)


def test_strong_scaling_shares_one_batch():
    """Document 003: 4 GPUs with 8 samples each are slower than one GPU with 32, at 0.46 ×."""
    share = ideal_share(world_size=4, samples=32, single_samples=32)

    scaling = scaling_of(
        world_size=4,
        throughput=32 / 0.050,
        single_throughput=32 / 0.023,
        step_s=0.050,
        single_s=0.023,
        ideal_share=share,
    )

    assert share == 0.25
    assert scaling.speedup == pytest.approx(0.46)
    assert scaling.efficiency == pytest.approx(0.115)
    assert scaling.overhead_s == pytest.approx(0.050 - 0.023 / 4)
    assert scaling.efficiency == pytest.approx(1 - scaling.overhead_fraction)
