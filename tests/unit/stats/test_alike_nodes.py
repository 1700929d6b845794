"""Alike nodes: what each usually is beside the others, and which of them is slow."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.alike_nodes import (
    judge_nodes,
    log_level,
    node_spread,
    offsets_to_all,
    offsets_to_others,
    usual_offsets,
    visit_spread,
)

NODE, VISIT, LAUNCH = 0.008, 0.003, 0.004  # sds of logs
LAUNCHES = 3
RATE = 0.03


class Nodes:
    """Nodes that differ for good, from session to session and from launch to launch."""

    def __init__(self, nodes: int, *, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.of_nodes = self.random.normal(0, NODE, nodes)

    def session(self, slower: dict[int, float] | None = None, level: float = 0.0):
        """Draw a session: of each node, the figure of each launch."""
        visits = self.of_nodes + self.random.normal(level, VISIT, len(self.of_nodes))
        for node, by in (slower or {}).items():
            visits[node] += math.log1p(by)
        noise = self.random.normal(0, LAUNCH, (len(visits), LAUNCHES))
        figures = np.exp(visits[:, None] + noise)
        return {f"n{i}": one.tolist() for i, one in enumerate(figures)}

    def offsets(self, sessions: int, **options):
        return [offsets_to_others(self.session(**options)) for _ in range(sessions)]


def test_the_offset_of_a_node_is_its_log_ratio_to_the_median_of_the_others():
    offsets = offsets_to_others({"a": [1.0, 1.0], "b": [1.1], "c": [1.2, 1.2]})

    assert offsets["a"] == pytest.approx(-statistics.median([math.log(1.1), math.log(1.2)]))
    assert offsets["c"] == pytest.approx(math.log(1.2) - math.log(1.1) / 2)


def test_the_offsets_to_all_of_two_nodes_are_half_as_far_apart():
    session = {"a": [1.0], "b": [1.1]}

    assert offsets_to_all(session)["b"] == pytest.approx(offsets_to_others(session)["b"] / 2)


def test_a_launch_in_a_slow_mode_moves_no_level_of_three():
    assert log_level([1.0, 1.3, 1.01]) == pytest.approx(math.log(1.01))
    assert log_level([1.0, 1.21]) == pytest.approx(math.log(1.1))


def test_what_all_nodes_of_a_session_share_moves_no_offset():
    slower = offsets_to_others(Nodes(6, seed=1).session(level=0.5))

    assert slower == pytest.approx(offsets_to_others(Nodes(6, seed=1).session()))


def test_a_node_usually_has_the_median_of_its_offsets():
    sessions = [{"a": 0.01, "b": 0.0}, {"a": 0.2}, {"a": 0.02}]

    assert usual_offsets(sessions) == {"a": 0.02, "b": 0.0}


@pytest.mark.parametrize("sessions", [2, 3, 10])
def test_the_spread_of_one_node_is_that_of_its_sessions_and_of_the_others_median(sessions):
    offsets = Nodes(400, seed=1).offsets(sessions)

    spread = visit_spread(offsets)

    expected = math.sqrt(VISIT**2 + LAUNCH**2 * 0.45)  # a median of three has 0.45 of the variance
    assert spread.sd == pytest.approx(expected, rel=0.2)
    assert spread.degrees_of_freedom == pytest.approx(0.37 * 400 * (sessions - 1))


def test_one_session_of_each_node_shows_no_spread_of_its_sessions():
    assert visit_spread([{"a": 0.1}, {"b": 0.2}]) is None


def test_ten_slow_nodes_of_a_hundred_do_not_widen_the_spread_by_a_third():
    quiet, slow = (
        node_spread(offsets_to_others(Nodes(100, seed=2).session(slower)))
        for slower in ({}, dict.fromkeys(range(10), 0.2))
    )

    assert quiet.sd < slow.sd < 1.33 * quiet.sd


def test_a_slow_node_is_judged_by_its_own_sessions():
    nodes = Nodes(8, seed=1)

    first, *others = judge_nodes(nodes.session({5: 0.04}), nodes.offsets(10))

    assert first.node == "n5"
    assert first.slower == pytest.approx(math.log(1.04), abs=0.01)
    assert first.offset == pytest.approx(first.usual + first.slower)
    assert first.chance < RATE < min(one.chance for one in others)


def test_a_node_that_was_always_slow_is_slow_by_the_others():
    nodes, slower = Nodes(64, seed=1), {5: 0.1}

    first = judge_nodes(nodes.session(slower), nodes.offsets(10, slower=slower))[0]

    assert (first.node, first.usual) == ("n5", 0.0)
    assert first.chance < RATE


def test_another_sample_of_nodes_moves_no_change():
    """The others of a session are what they usually are, slow ones and fast ones."""
    earlier = [{"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.0, "e": -0.1}] * 3
    session = {node: [math.exp(offset)] for node, offset in earlier[0].items() if node != "e"}

    assert {one.node: one.offset for one in judge_nodes(session, earlier)} == pytest.approx(
        {"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.0}
    )


@pytest.mark.parametrize("sessions", [0, 1, 2, 10])
def test_sessions_of_healthy_nodes_have_a_false_alarm_at_the_rate_at_most(sessions):
    trials, alarms = 150, 0
    for seed in range(trials):
        nodes = Nodes(8, seed=seed)
        earlier = nodes.offsets(sessions)
        alarms += any(one.chance <= RATE for one in judge_nodes(nodes.session(), earlier))

    assert stats.binom.sf(alarms - 1, trials, RATE) > 0.001


def test_too_few_nodes_are_refused():
    with pytest.raises(ValueError, match="3 nodes: at least 4 show which one differs"):
        judge_nodes(Nodes(3, seed=1).session(), [])


def test_a_node_without_a_launch_or_another_node_is_refused():
    with pytest.raises(ValueError, match="a node has no launch"):
        offsets_to_others({"a": [1.0], "b": []})
    with pytest.raises(ValueError, match="at least two nodes"):
        offsets_to_others({"a": [1.0]})
