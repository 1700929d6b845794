"""Cases have a cost if their suite states a price."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import Unit
from ddp_perf.session.figures import costs_of, epoch_of
from ddp_perf.stats.summary import summaries_of
from tests.builders import make_case, make_cases, make_measurement


def costs(**suite):
    cases = make_cases(**suite)
    measurements = {case.id: make_measurement(case, [0.01, 0.02, 0.03]) for case in cases}
    found = costs_of(measurements, summaries_of(measurements))
    return [found.get(case.id) for case in cases]


def test_the_cost_is_computed_from_the_median_throughput():
    one, two = costs(price_per_gpu_hour=3.6, epoch_samples=64_000)

    assert one.per_million == pytest.approx(3.6 / 3600 / (64 / 0.02) * 1e6)
    assert two.per_million == pytest.approx(one.per_million)  # the same step on two ranks
    assert two.efficiency == pytest.approx(1)
    assert two.per_epoch == pytest.approx(two.per_million * 0.064)


@pytest.mark.parametrize(
    ("changes", "epoch"),
    [
        ({}, None),
        ({"model": {"dataset": "imdb"}}, 25_000 * 512),
        ({"model": {"dataset": "imdb"}, "epoch_samples": 640}, 640 * 512),
    ],
)
def test_an_epoch_is_stated_by_the_suite_or_given_by_the_data_set(changes, epoch):
    assert epoch_of(make_case(**changes), Unit(name="tokens", per_sample=512)) == epoch


def test_a_case_without_a_price_has_no_cost():
    assert costs() == [None, None]


def test_a_cost_without_a_single_rank_case_has_no_efficiency():
    (two,) = costs(price_per_gpu_hour=1, world_sizes=[2])

    assert (two.efficiency, two.per_epoch) == (None, None)


def test_a_case_without_a_launch_has_no_cost():
    one, _ = make_cases(price_per_gpu_hour=1)
    measurements = {one.id: make_measurement(one, [])}

    assert costs_of(measurements, summaries_of(measurements)) == {}
