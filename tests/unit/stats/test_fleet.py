"""Alike nodes: which of them is slow, how much they differ, and the level of the code over them."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.fleet import (
    NodeSpread,
    code_errors,
    code_figures,
    false_discoveries,
    judge_nodes,
    level_share,
    log_level,
    node_bound,
    node_chance,
    node_comparison,
    node_offsets,
    node_spread,
    visits_of,
)

NODE, VISIT, LAUNCH = 0.008, 0.003, 0.004  # sds of logs
LAUNCHES = 3


class Fleet:
    """Nodes that differ for good, from visit to visit and from launch to launch."""

    def __init__(self, nodes: int, *, seed: int, visit: float = VISIT) -> None:
        self.visit = visit
        self.random = np.random.default_rng(seed)
        self.of_nodes = self.random.normal(0, NODE, nodes)

    def session(self, slower: dict[int, float] | None = None, level: float = 0.0):
        """Draw a session: of each node, the figure of each launch."""
        visits = self.of_nodes + self.random.normal(level, self.visit, len(self.of_nodes))
        for node, by in (slower or {}).items():
            visits[node] += math.log1p(by)
        noise = self.random.normal(0, LAUNCH, (len(visits), LAUNCHES))
        figures = np.exp(visits[:, None] + noise)
        return {f"n{i}": one.tolist() for i, one in enumerate(figures)}


def judged(session, earlier=(), **options):
    given = {"tolerance": 0.02, "false_discovery_rate": 0.03, **options}
    return judge_nodes(session, list(earlier), **given)


def test_the_offset_of_a_node_is_its_log_ratio_to_the_median_of_the_others():
    offsets = node_offsets({"a": [1.0, 1.0], "b": [1.1], "c": [1.2, 1.2]})

    assert offsets["a"] == pytest.approx(-statistics.median([math.log(1.1), math.log(1.2)]))
    assert offsets["c"] == pytest.approx(math.log(1.2) - math.log(1.1) / 2)


def test_the_level_of_all_nodes_is_that_of_the_others_less_what_they_are_expected_at():
    """Three slow nodes in a session of four make no fast node of the fourth."""
    session = {"a": [1.0], "b": [1.1], "c": [1.1], "d": [1.1]}
    expected = dict.fromkeys("bcd", math.log(1.1))

    assert node_offsets(session, expected)["a"] == pytest.approx(0)
    assert node_offsets(session, expected)["b"] == pytest.approx(math.log(1.1))


@pytest.mark.parametrize("nodes", [2, 3, 4, 9, 10])
def test_offsets_are_those_of_the_definition(nodes):
    session = Fleet(nodes, seed=2).session()
    levels = {node: statistics.median(np.log(figures)) for node, figures in session.items()}

    for node, offset in node_offsets(session).items():
        others = [level for other, level in levels.items() if other != node]
        assert offset == pytest.approx(levels[node] - statistics.median(others), abs=1e-12)


def test_a_launch_in_a_slow_mode_moves_no_level_of_three_and_widens_no_spread():
    session = Fleet(8, seed=2).session()
    slow = session | {"n3": [*session["n3"][:2], 1.2 * max(session["n3"])]}

    assert log_level([1.0, 1.0, 1.2]) == 0
    assert log_level([1.0, 1.44]) == pytest.approx(math.log(1.2))
    assert node_offsets(slow)["n3"] == pytest.approx(node_offsets(session)["n3"], abs=0.01)
    assert node_spread(slow, []).visit == pytest.approx(node_spread(session, []).visit, rel=0.3)


@pytest.mark.parametrize("launches", [1, 2, 3, 5, 9])
def test_the_share_of_the_launches_in_a_level_is_that_of_normal_launches(launches):
    logs = np.random.default_rng(1).normal(0, 1, (40_000, launches))

    levels = [log_level(one) for one in np.exp(logs)]

    assert np.var(levels) == pytest.approx(level_share(launches), rel=0.04)


def test_what_all_nodes_of_a_session_share_moves_no_offset():
    session = Fleet(8, seed=1).session()
    slower = {node: [1.1 * figure for figure in figures] for node, figures in session.items()}

    assert node_offsets(slower) == pytest.approx(node_offsets(session))


def test_rejections_are_those_of_scipy():
    random = np.random.default_rng(3)
    for _ in range(50):
        chances = random.random(20) ** 3
        adjusted = stats.false_discovery_control(chances)

        assert false_discoveries(chances.tolist(), 0.1) == (adjusted <= 0.1).tolist()


def test_no_rejection_without_a_chance():
    assert false_discoveries([], 0.1) == []


def test_the_expected_offset_is_that_of_the_mixed_model():
    """Condition the normal law of (node's effect, visit) on the visit; three have its mean."""
    spread = NodeSpread(node=4.0, visit=1.5, node_df=9, visit_df=9)
    covariance = np.array([[4.0, 4.0], [4.0, 5.5]])
    gain = covariance[0, 1] / covariance[1, 1]

    assert spread.expected([2.0]) == pytest.approx(gain * 2.0)
    assert spread.variance(1, 1) == pytest.approx(4.0 - gain * covariance[0, 1] + 1.5)
    assert spread.expected([]) == 0
    assert spread.variance(0, 1) == 5.5


def test_the_variance_around_what_is_expected_is_that_of_drawn_visits_at_most():
    """A median of few visits varies less than the limit π/2 ÷ n, by a quarter at four."""
    spread = NodeSpread(node=4.0, visit=1.5, node_df=9, visit_df=9)
    random = np.random.default_rng(4)
    node = random.normal(0, 2.0, 20_000)
    for before, since in ((1, 1), (4, 1), (8, 4)):
        visits = node[:, None] + random.normal(0, math.sqrt(1.5), (len(node), before + since))
        errors = [
            statistics.median(one[before:]) - spread.expected(one[:before])
            for one in visits.tolist()
        ]

        assert 0.75 < np.var(errors) / spread.variance(before, since) < 1.03


def test_one_visit_in_a_slow_mode_is_forgotten():
    fleet = Fleet(32, seed=14)
    earlier = [node_offsets(fleet.session()) for _ in range(6)]
    earlier.append(node_offsets(fleet.session({5: 0.3})))

    found = judged(fleet.session(), earlier)

    assert not any(one.is_slow for one in found.nodes)
    assert found.spread.expected([one["n5"] for one in earlier]) < 0.03


def test_the_spread_of_nodes_and_of_visits_is_estimated():
    fleet = Fleet(200, seed=5)
    earlier = [node_offsets(fleet.session()) for _ in range(4)]

    spread = node_spread(fleet.session(), earlier)

    visit = VISIT**2 + LAUNCH**2 / LAUNCHES
    assert math.sqrt(spread.visit) == pytest.approx(math.sqrt(visit), rel=0.1)
    assert math.sqrt(spread.node) == pytest.approx(NODE, rel=0.15)


def test_the_error_of_the_others_median_is_no_spread():
    """The median of 200 estimates has a relative error of 3 % or so; it would be 31 % too high."""
    found = []
    for seed in range(200):
        fleet = Fleet(6, seed=seed, visit=0.01)
        earlier = [node_offsets(fleet.session()) for _ in range(12)]
        found.append(node_spread(fleet.session(), earlier).visit)

    assert np.median(found) == pytest.approx(0.01**2 + LAUNCH**2 / LAUNCHES, rel=0.12)


def test_ten_slow_nodes_of_a_hundred_do_not_widen_the_spread_by_a_third():
    """The median absolute deviation of 90 + 10 far values is that at 0.5 / 0.9 of the 90."""
    session = Fleet(100, seed=6).session(dict.fromkeys(range(10), 0.2))

    total = node_spread(session, [])

    widened = stats.norm.ppf((1 + 0.5 / 0.9) / 2) / stats.norm.ppf(0.75)
    expected = math.hypot(NODE, math.hypot(VISIT, LAUNCH / math.sqrt(LAUNCHES))) * widened
    assert math.sqrt(total.node + total.visit) == pytest.approx(expected, rel=0.2)


def test_without_a_second_visit_the_launches_are_the_spread_of_a_visit():
    spread = node_spread(Fleet(300, seed=7).session(), [])

    assert math.sqrt(spread.visit) == pytest.approx(
        LAUNCH * math.sqrt(level_share(LAUNCHES)), rel=0.1
    )
    assert spread.visit_df == pytest.approx(0.37 * 300 * (LAUNCHES - 1))


def test_one_launch_a_node_and_one_visit_are_judged():
    session = {f"n{i}": [1 + 0.001 * (i % 5)] for i in range(20)} | {"slow": [1.3]}

    found = judged(session)

    assert [one.node for one in found.nodes if one.is_slow] == ["slow"]


def test_a_slow_node_is_found_first_with_its_ratio_and_its_visits():
    fleet = Fleet(32, seed=8)
    earlier = [node_offsets(fleet.session()) for _ in range(5)]
    earlier += [node_offsets(fleet.session({7: 0.06})) for _ in range(3)]

    found = judged(fleet.session({7: 0.06}), earlier)

    first = found.nodes[0]
    assert [one.node for one in found.nodes if one.is_slow] == ["n7"] == [first.node]
    assert first.visits_since == 4
    noise = 3 * math.sqrt(NODE**2 + VISIT**2)  # it may be faster or slower than the others itself
    assert first.ratio == pytest.approx(1.06, abs=noise)
    assert found.offsets.keys() == {f"n{i}" for i in range(32)}


def test_a_node_that_is_slower_than_it_was_but_not_by_the_tolerance_is_not_slow():
    fleet = Fleet(32, seed=9)
    fleet.of_nodes[7] = -0.03
    earlier = [node_offsets(fleet.session()) for _ in range(10)]

    session = fleet.session({7: 0.03})

    assert not any(one.is_slow for one in judged(session, earlier).nodes)


def test_a_node_that_was_always_slow_is_slow_by_the_others():
    fleet = Fleet(64, seed=10)
    earlier = [node_offsets(fleet.session({3: 0.07})) for _ in range(6)]

    found = judged(fleet.session({3: 0.07}), earlier)

    assert found.nodes[0].node == "n3"
    assert found.nodes[0].is_slow


def test_visits_of_a_slow_node_add_up():
    """More fleets find a node on its fourth slow visit than on its first (sign test at 1 %)."""
    found = np.zeros((80, 4), dtype=bool)
    for seed in range(80):
        fleet = Fleet(32, seed=seed, visit=0.01)
        earlier = [node_offsets(fleet.session()) for _ in range(8)]
        for visit in range(4):
            now = judged(fleet.session({0: 0.05}), earlier)
            found[seed, visit] = any(one.is_slow for one in now.nodes if one.node == "n0")
            earlier.append(now.offsets)

    later, sooner = (found[:, 3] & ~found[:, 0]).sum(), (found[:, 0] & ~found[:, 3]).sum()
    assert stats.binomtest(later, later + sooner, alternative="greater").pvalue < 0.01


@pytest.mark.parametrize("visits", [0, 3])
def test_healthy_fleets_have_false_alarms_at_the_rate_at_most(visits):
    """Of 200 sessions at a rate of 10 % more than 32 would be a chance of 0.5 %."""
    alarms = 0
    for seed in range(200):
        fleet = Fleet(20, seed=seed)
        earlier = [node_offsets(fleet.session()) for _ in range(visits)]
        found = judged(fleet.session(), earlier, tolerance=1e-6, false_discovery_rate=0.1)
        alarms += any(one.is_slow for one in found.nodes)

    assert alarms <= stats.binom.ppf(0.995, 200, 0.1)


def test_the_variance_of_the_code_is_that_of_simulated_sessions():
    """The ratio of both variances has a relative sd of sqrt(2 / 400); four of them are allowed."""
    truth = NodeSpread(
        node=NODE**2, visit=VISIT**2 + LAUNCH**2 / LAUNCHES, node_df=math.inf, visit_df=math.inf
    )
    random = np.random.default_rng(12)
    for visits in (0, 4):
        levels = []
        for seed in range(400):
            fleet = Fleet(8, seed=seed)
            earlier = [_true_offsets(fleet) for _ in range(visits)]
            session = fleet.session(level=random.normal(0, 0.005))
            before = {node: visits_of(node, earlier) for node in session}
            levels.append(np.log(code_figures(session, before, truth)).mean())

        errors = code_errors(truth, session=0.005**2, nodes=8, visits=visits, sessions=20)

        of_session = errors.variance(8, 5) - errors.reference_variance(5)
        assert np.var(levels, ddof=1) == pytest.approx(of_session, rel=4 * math.sqrt(2 / 400))


def _true_offsets(fleet: Fleet) -> dict[str, float]:
    return {node: float(np.log(one).mean()) for node, one in fleet.session().items()}


def test_too_few_nodes_are_refused():
    with pytest.raises(ValueError, match="3 nodes: at least 4"):
        judged({"a": [1.0], "b": [1.0], "c": [1.0]})


def test_a_node_without_a_launch_is_refused():
    with pytest.raises(ValueError, match="a launch of each"):
        node_offsets({"a": [1.0], "b": []})


@pytest.mark.parametrize("since", [1, 3])
def test_the_bound_of_a_chance_is_its_inverse(since):
    spread = NodeSpread(node=1e-4, visit=4e-5, node_df=40.0, visit_df=60.0)
    options = {"before": 5, "since": since, "centre": 1e-6, "tolerance": 0.02}

    bound = node_bound(node_comparison(spread, 0.0, **options), since, 1e-5)

    assert node_chance(node_comparison(spread, bound, **options), since) == pytest.approx(1e-5)


def test_three_visits_prove_what_one_visit_as_far_off_does_not():
    spread = NodeSpread(node=1e-4, visit=4e-5, node_df=40.0, visit_df=60.0)
    options = {"before": 5, "centre": 0.0, "tolerance": 0.02}
    chances = [
        node_chance(node_comparison(spread, 0.06, since=since, **options), since)
        for since in (1, 3)
    ]

    assert chances[1] < chances[0] / 1000
