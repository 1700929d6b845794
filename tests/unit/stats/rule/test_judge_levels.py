"""At which level each outcome is reached, against Student's t and by the stated level."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import stats

from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.rule.judge import judge_launches

# Sessions of one launch whose levels alternate: their spread is the only thing to estimate.
LEVELS = np.array([0.03, -0.03, 0.02, -0.02, 0.025, -0.025, 0.015, -0.015])
BASELINE = [[[math.exp(level)]] for level in LEVELS]
ERROR = LEVELS.std(ddof=1) * math.sqrt(1 + 1 / len(LEVELS))


def at(p, *, sign=1, **options):
    """Return the verdict on a session as far off as chance takes it with probability ``p``."""
    difference = sign * stats.t.isf(p, len(LEVELS) - 1) * ERROR
    return judge_launches(
        [[math.exp(difference)]], BASELINE, **{"tolerance": 1e-9, "alpha": 0.001, **options}
    )


@pytest.mark.parametrize(
    ("p", "outcome"),
    [
        (0.0009, Outcome.REGRESSION),
        (0.0011, Outcome.SUSPECT),
        (0.009, Outcome.SUSPECT),
        (0.011, Outcome.INCONCLUSIVE),
    ],
)
def test_slower_at_alpha_is_a_regression_and_at_one_per_cent_a_suspect(p, outcome):
    assert at(p).outcome is outcome


def test_no_verdict_is_suspect_if_alpha_exceeds_one_per_cent():
    assert at(0.019, alpha=0.02).outcome is Outcome.REGRESSION
    assert at(0.021, alpha=0.02).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(("p", "outcome"), [(0.0009, Outcome.IMPROVEMENT), (0.0011, Outcome.PASS)])
def test_faster_at_alpha_is_an_improvement(p, outcome):
    assert at(p, sign=-1).outcome is outcome


@pytest.mark.parametrize(("p", "outcome"), [(0.0045, Outcome.PASS), (0.0055, Outcome.INCONCLUSIVE)])
def test_a_pass_rules_out_twice_the_tolerance_at_half_a_per_cent(p, outcome):
    bound = math.log1p(2 * 0.06)
    difference = bound - stats.t.isf(p, len(LEVELS) - 1) * ERROR

    verdict = judge_launches([[math.exp(difference)]], BASELINE, tolerance=0.06, alpha=0.001)

    assert verdict.outcome is outcome


def stated_level(verdict):
    """Return the level in per cent that the reason states."""
    assert verdict.outcome is Outcome.REGRESSION, verdict
    return float(re.search(r"at the ([\d.e-]+) % level", verdict.reason)[1])


def simulated_sessions(count, launches, *, slow=(), spread=0.01):
    """Return quiet sessions; ``slow`` are the pairs of session and launch in a slow mode."""
    pattern = [1, 1 + spread, 1 - spread, 1 + spread / 2, 1 - spread / 2]
    return [
        [
            [(1 + 0.001 * (-1) ** session) * pattern[k % 5] * (1.4 if (session, k) in slow else 1)]
            for k in range(launches)
        ]
        for session in range(count)
    ]


def test_level_and_share_get_half_of_alpha_each_if_there_is_a_slow_mode():
    slower = [[1.5 * value for value in launch] for launch in simulated_sessions(1, 5)[0]]
    plain = judge_launches(slower, simulated_sessions(8, 5), tolerance=0.02, alpha=0.002)
    modes = judge_launches(
        [[2.5 * launch[0]] for launch in simulated_sessions(1, 5)[0]],
        simulated_sessions(8, 5, slow=[(1, 2), (4, 0), (6, 3)]),
        tolerance=0.02,
        alpha=0.002,
    )

    assert stated_level(plain) == pytest.approx(0.2)
    assert stated_level(modes) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("launches", "like"), [(4, 5), (6, 10), (9, 10), (15, 20), (20, 20), (30, 20)]
)
def test_each_look_has_the_level_of_the_first_planned_one_with_as_many_launches(launches, like):
    def level(count):
        slower = [[1.5 * launch[0]] for launch in simulated_sessions(1, count)[0]]
        return stated_level(
            judge_launches(
                slower, simulated_sessions(8, 20), tolerance=0.02, alpha=0.2, looks=(5, 10, 20)
            )
        )

    levels = {count: level(count) for count in (5, 10, 20)}
    assert len(set(levels.values())) == 3
    assert level(launches) == levels[like]
    assert all(found < 20 for found in levels.values())


def test_a_pass_is_stricter_at_one_of_several_looks():
    def passes(looks):
        return sum(
            judge_launches(
                [[step * launch[0]] for launch in simulated_sessions(1, 5, spread=0.05)[0]],
                simulated_sessions(8, 5, spread=0.05),
                tolerance=0.05,
                alpha=0.001,
                looks=looks,
            ).outcome
            is Outcome.PASS
            for step in np.linspace(0.98, 1.05, 200)
        )

    assert 0 < passes((5, 10, 20)) < passes(())


@pytest.mark.parametrize("lacking", [[], [[0.002], []]], ids=["no launch", "a launch without"])
@pytest.mark.parametrize("where", ["now", "then"])
def test_a_session_without_its_control_leaves_the_control_out(lacking, where):
    controls = [[[0.002], [0.002]] for _ in range(9)]
    controls[-1 if where == "now" else 3] = lacking
    arguments = {"tolerance": 0.02, "alpha": 0.001}

    verdict = judge_launches(
        simulated_sessions(1, 5)[0],
        simulated_sessions(8, 5),
        control=controls[-1],
        baseline_control=controls[:-1],
        **arguments,
    )

    assert verdict == judge_launches(
        simulated_sessions(1, 5)[0], simulated_sessions(8, 5), **arguments
    )


def test_the_control_moves_against_the_sessions_that_set_the_level():
    controls = [[[0.002]]] * 5 + [[[0.0024]]] * 4

    verdict = judge_launches(
        simulated_sessions(1, 5)[0],
        simulated_sessions(8, 5),
        tolerance=0.02,
        alpha=0.001,
        control=controls[-1],
        baseline_control=controls[:-1],
        reference=5,
    )

    assert "The control moved +20.0 %" in verdict.reason


def test_a_reference_that_was_slow_as_a_whole_is_compared_anyway():
    """Without it there would be nothing left to compare with."""
    usual = simulated_sessions(
        12, 3, slow=[(1, 0), (2, 1), (3, 0), (4, 2), (6, 1), (7, 1), (9, 0), (11, 2)]
    )
    usual[0] = [[1.4 * launch[0]] for launch in usual[0]]
    verdict = judge_launches(usual[5], usual, tolerance=0.02, alpha=0.001, reference=1)

    assert verdict.ratio == pytest.approx(1 / 1.4, rel=0.02)


def slow_launches(sessions_before, slow_now):
    """Return the verdict on five launches; ``slow_now`` are in a slow mode, none was before."""
    current = simulated_sessions(1, 5, slow=[(0, k) for k in range(slow_now)])[0]
    return judge_launches(
        current, simulated_sessions(sessions_before, 5), tolerance=0.02, alpha=0.001
    )


def test_more_slow_launches_are_a_regression_of_all_launches_without_an_interval():
    verdict = slow_launches(16, 4)

    assert verdict.outcome is Outcome.REGRESSION
    assert "more launches than before fall into the slow mode" in verdict.reason
    assert verdict.ratio == pytest.approx(1.4 ** (4 / 5), rel=0.01)
    assert verdict.interval is None


@pytest.mark.parametrize(("before", "outcome"), [(16, Outcome.PASS), (20, Outcome.INCONCLUSIVE)])
def test_a_slow_launch_with_a_p_value_below_five_per_cent_prevents_a_pass(before, outcome):
    """One of five is slow now and none before: its p value is 5 ÷ 85, or 5 ÷ 105."""
    assert slow_launches(before, 1).outcome is outcome
