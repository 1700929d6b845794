"""Simulated nights of a small fleet: they agree with what its plan predicts."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from scipy import stats

from ddp_perf.plan.fleet_file import read_fleet
from ddp_perf.plan.schedule import FleetPlan, Planner
from tests.quality.simulated_fleet import SimulatedFleet

FILE = Path(__file__).parents[3] / "docs" / "fleets" / "256-gpus.yaml"
TRIALS = 30


@functools.cache
def plan() -> FleetPlan:
    return Planner(read_fleet(FILE)).plan()


def fleet(seed, law="normal"):
    made = SimulatedFleet(plan(), seed=seed, law=law)
    made.run_in()
    return made


def likely(count, probability, trials=TRIALS):
    """Return whether so many of the trials are within the central 99.8 % of the binomial law."""
    low, high = stats.binom.interval(0.998, trials, probability)
    return low <= count <= high


@pytest.mark.slow
def test_a_night_finds_slower_code_as_often_as_predicted():
    (found,) = plan().sample.code

    red = sum(fleet(seed).night(slower=found.smallest).code_is_red for seed in range(TRIALS))

    assert likely(red, 0.9)


@pytest.mark.slow
def test_a_slow_node_is_reported_in_its_nights_as_often_as_predicted():
    """The aim has a predicted probability; a plan that is careful may find more."""
    aim, node = plan().file.find.node, plan().sample.node
    reported = 0
    for seed in range(TRIALS):
        nights = fleet(seed)
        slow = {seed % 32: aim.slower}
        reported += any(
            nights.night(slow_nodes=slow).bad_nodes == {str(seed % 32)} for _ in range(aim.nights)
        )

    assert reported >= stats.binom.ppf(0.001, TRIALS, node.within)


@pytest.mark.slow
def test_false_alarms_are_no_more_frequent_than_accepted():
    accepted, nights = plan().sessions[0].false_alarm_rate, 300
    found = [one for seed in range(3) for one in _nights(fleet(seed), nights // 3)]

    for alarms in (
        sum(one.code_is_red for one in found),
        sum(bool(one.bad_nodes) for one in found),
    ):
        assert alarms <= stats.binom.ppf(0.999, nights, accepted)


@pytest.mark.slow
def test_a_launch_in_a_slow_mode_is_reported_as_no_slow_node():
    """One launch of a hundred takes 20 % longer; without the second visit each is a slow node."""
    nights = 200
    found = _nights(fleet(1, law="slow launches"), nights)

    alarms = sum(bool(one.bad_nodes) for one in found)
    launches = nights * plan().sample.nodes * plan().sample.launches
    assert 0.01 * launches > 7
    assert alarms <= stats.binom.ppf(0.999, nights, plan().sessions[0].false_alarm_rate)


def test_each_node_is_visited_once_in_a_turn():
    nights = fleet(2)
    sample = plan().sample

    visited = [node for _ in range(sample.every) for node in nights._sampled()]

    assert sorted(set(visited)) == list(range(32))


def _nights(nights, count):
    return [nights.night() for _ in range(count)]
