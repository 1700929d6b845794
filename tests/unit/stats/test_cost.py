"""Document 004's cost table from its own inputs, and the size to choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.stats.hardware import best_within, cost_of, priced, training

PRICE = 3.0
# GPUs: hours to 90 epochs, cost, cost efficiency, as printed.
TABLE = {
    1: (720, 2160, 1.0),
    8: (97, 2328, 0.93),
    16: (51, 2448, 0.88),
    32: (27, 2592, 0.83),
    64: (16, 3072, 0.70),
}
SPEEDUPS = {8: 7.4, 16: 14.2, 32: 26.7, 64: 49.0}  # its Latency Analysis
CONFIGURATIONS = [priced(gpus, hours, PRICE) for gpus, (hours, _, _) in TABLE.items()]
AMOUNTS = st.floats(1e-3, 1e6)


@pytest.mark.parametrize("gpus", TABLE)
def test_the_costs_follow_from_hours_and_price(gpus):
    hours, cost, efficiency = TABLE[gpus]

    assert priced(gpus, hours, PRICE).cost == cost
    assert round(TABLE[1][1] / cost, 2) == efficiency


def test_the_hours_follow_from_the_speedups_except_for_64_gpus():
    hours = {gpus: 720 / speedup for gpus, speedup in SPEEDUPS.items()}

    assert [round(hours[gpus]) for gpus in (8, 16, 32)] == [97, 51, 27]
    assert round(hours[64], 1) == 14.7  # it prints 16


def test_best_within_prefers_16_gpus_only_under_some_deadlines_and_budgets():
    """The document calls 16 GPUs "optimal"; by its own costs one GPU is, if there is time."""
    assert best_within(CONFIGURATIONS).world_size == 1
    assert best_within(CONFIGURATIONS, deadline_h=60).world_size == 16
    assert best_within(CONFIGURATIONS, budget=2500).world_size == 16
    assert best_within(CONFIGURATIONS, budget=5000).world_size == 64


def test_cost_of_the_published_throughputs_at_the_published_price():
    sixteen = cost_of(
        world_size=16,
        throughput=16_240,
        price_per_gpu_hour=PRICE,
        epoch_samples=1_281_167,
        single_throughput=1150,
    )

    assert sixteen.per_million == pytest.approx(16 * 3 / 3600 / 16_240 * 1e6)
    assert sixteen.per_epoch == pytest.approx(1.281167 * sixteen.per_million)
    assert sixteen.efficiency == pytest.approx(16_240 / 16 / 1150)  # its scaling efficiency: 88 %


def test_cost_per_epoch_and_efficiency_are_none_if_not_stated():
    cost = cost_of(world_size=1, throughput=1.0, price_per_gpu_hour=1.0)

    assert (cost.per_epoch, cost.efficiency) == (None, None)


def test_best_within_is_none_if_no_configuration_fits():
    assert best_within([]) is None
    assert best_within(CONFIGURATIONS, deadline_h=1) is None
    assert best_within(CONFIGURATIONS, deadline_h=60, budget=2400) is None


@given(throughput=AMOUNTS, samples=AMOUNTS, price=AMOUNTS, gpus=st.integers(1, 10_000))
def test_training_cost_is_cost_per_sample_times_samples(throughput, samples, price, gpus):
    whole = training(
        world_size=gpus, throughput=throughput, samples=samples, price_per_gpu_hour=price
    )
    cost = cost_of(world_size=gpus, throughput=throughput, price_per_gpu_hour=price)

    assert whole.cost == pytest.approx(cost.per_million * samples / 1e6)
    assert whole.hours == pytest.approx(samples / throughput / 3600)


@given(st.lists(st.tuples(st.integers(1, 512), AMOUNTS), min_size=1), AMOUNTS, AMOUNTS)
def test_best_within_keeps_the_limits_and_no_other_is_better(rows, deadline_h, budget):
    sizes = [priced(gpus, hours, 1.0) for gpus, hours in rows]

    in_time = best_within(sizes, deadline_h=deadline_h)
    paid = best_within(sizes, budget=budget)

    assert (in_time is None) == all(size.hours > deadline_h for size in sizes)
    if in_time is not None:
        assert in_time.cost == min(s.cost for s in sizes if s.hours <= deadline_h)
    if paid is not None:
        assert paid.hours == min(s.hours for s in sizes if s.cost <= budget)
