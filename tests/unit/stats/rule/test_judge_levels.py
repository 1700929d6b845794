"""At which level each outcome is reached, against Student's t and by the stated level."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import stats

from ddp_perf.core.verdict import Outcome
from tests.judging import judge

# Sessions of one launch whose levels alternate: their spread is the only thing to estimate.
LEVELS = np.array([0.03, -0.03, 0.02, -0.02, 0.025, -0.025, 0.015, -0.015])
BASELINE = [[[math.exp(level)]] for level in LEVELS]
# The level is the median of eight, 0; its variance is that of many: π/2 ÷ n.
ERROR = LEVELS.std(ddof=1) * math.sqrt(1 + math.pi / 2 / len(LEVELS))


def at(p, *, sign=1, **options):
    """Return the verdict on a session as far off as chance takes it with probability ``p``."""
    difference = sign * stats.t.isf(p, len(LEVELS) - 1) * ERROR
    return judge(
        [[math.exp(difference)]], BASELINE, **{"tolerance": 1e-9, "alpha": 0.001, **options}
    )


@pytest.mark.parametrize(
    ("p", "outcome"),
    [
        (0.00074, Outcome.REGRESSION),
        (0.00076, Outcome.SUSPECT),
        (0.009, Outcome.SUSPECT),
        (0.011, Outcome.UNDECIDED),
    ],
)
def test_slower_at_three_quarters_of_alpha_is_a_regression_and_at_one_per_cent_a_suspect(
    p, outcome
):
    assert at(p).outcome is outcome


def test_no_verdict_is_suspect_if_alpha_exceeds_one_per_cent():
    assert at(0.0149, alpha=0.02).outcome is Outcome.REGRESSION
    assert at(0.0151, alpha=0.02).outcome is Outcome.UNDECIDED


@pytest.mark.parametrize(("p", "sessions"), [(0.0076, 3), (0.0013, 3), (0.0012, 2)])
def test_the_chance_of_a_suspect_is_its_p_value_and_no_other_verdict_has_one(p, sessions):
    """The probability of the run ``p × 0.1^(n − 1)`` is at most an eighth of 0.001."""
    assert at(p).chance == pytest.approx(p)
    assert f"{sessions} such sessions in a row" in at(p).reason
    assert [at(p).chance for p in (0.0005, 0.02)] == [None, None]


@pytest.mark.parametrize(
    ("p", "outcome"), [(0.00074, Outcome.IMPROVEMENT), (0.00076, Outcome.PASS)]
)
def test_faster_at_three_quarters_of_alpha_is_an_improvement(p, outcome):
    assert at(p, sign=-1).outcome is outcome


@pytest.mark.parametrize(("p", "outcome"), [(0.0045, Outcome.PASS), (0.0055, Outcome.UNDECIDED)])
def test_a_pass_rules_out_twice_the_tolerance_at_half_a_per_cent(p, outcome):
    bound = math.log1p(2 * 0.06)
    difference = bound - stats.t.isf(p, len(LEVELS) - 1) * ERROR

    verdict = judge([[math.exp(difference)]], BASELINE, tolerance=0.06, alpha=0.001)

    assert verdict.outcome is outcome


def stated_level(verdict):
    """Return the level in per cent that the reason states."""
    assert verdict.outcome is Outcome.REGRESSION, verdict
    return float(re.search(r"is called slower in ([\d.e-]+) %", verdict.reason)[1])


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


def test_the_stated_level_is_three_quarters_of_alpha_also_if_there_is_a_slow_mode():
    plain = judge(
        [[1.5 * launch[0]] for launch in simulated_sessions(1, 5)[0]],
        simulated_sessions(8, 5),
        tolerance=0.02,
        alpha=0.002,
    )
    modes = judge(
        [[2.5 * launch[0]] for launch in simulated_sessions(1, 5)[0]],
        simulated_sessions(8, 5, slow=[(1, 2), (4, 0), (6, 3)]),
        tolerance=0.02,
        alpha=0.002,
    )

    assert stated_level(plain) == stated_level(modes) == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("launches", "like"), [(4, 5), (6, 10), (9, 10), (15, 20), (20, 20), (30, 20)]
)
def test_each_look_has_the_level_of_the_first_planned_one_with_as_many_launches(launches, like):
    def level(count):
        slower = [[1.5 * launch[0]] for launch in simulated_sessions(1, count)[0]]
        return stated_level(
            judge(slower, simulated_sessions(8, 20), tolerance=0.02, alpha=0.2, looks=(5, 10, 20))
        )

    levels = {count: level(count) for count in (5, 10, 20)}
    assert len(set(levels.values())) == 3
    assert level(launches) == levels[like]
    assert all(found < 20 for found in levels.values())


def test_a_pass_is_stricter_at_one_of_several_looks():
    def passes(looks):
        return sum(
            judge(
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

    verdict = judge(
        simulated_sessions(1, 5)[0],
        simulated_sessions(8, 5),
        control=controls[-1],
        baseline_control=controls[:-1],
        **arguments,
    )

    assert verdict == judge(simulated_sessions(1, 5)[0], simulated_sessions(8, 5), **arguments)


def test_the_control_moves_against_the_sessions_that_set_the_level():
    controls = [[[0.002 * by]] for by in (1.0, 1.05, 0.95, 1.02, 0.98, *[1.2] * 4)]
    *before, current = [[[500 * control[0][0]]] for control in controls]

    verdict = judge(
        current,
        before,
        tolerance=0.02,
        alpha=0.001,
        control=controls[-1],
        baseline_control=controls[:-1],
        reference=5,
    )

    assert verdict.ratio == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("moved", "named"), [(1.0, False), (1.003, False), (1.2, True)])
def test_a_control_that_hardly_moved_is_not_named(moved, named):
    controls = [[[0.002 * factor]] for factor in (1.01, 0.99, 1.005, 0.995) * 2 + (moved,)]

    verdict = judge(
        simulated_sessions(1, 5)[0],
        simulated_sessions(8, 5),
        tolerance=0.02,
        alpha=0.001,
        control=controls[-1],
        baseline_control=controls[:-1],
    )

    assert ("matrix product" in verdict.reason) is named


def test_a_reference_that_was_slow_as_a_whole_is_compared_anyway():
    """Without it there would be nothing left to compare with."""
    usual = simulated_sessions(
        12, 3, slow=[(1, 0), (2, 1), (3, 0), (4, 2), (6, 1), (7, 1), (9, 0), (11, 2)]
    )
    usual[0] = [[1.4 * launch[0]] for launch in usual[0]]
    verdict = judge(usual[5], usual, tolerance=0.02, alpha=0.001, reference=1)

    assert verdict.ratio == pytest.approx(1 / 1.4, rel=0.02)


def slow_launches(slow_now, *, sessions=16, before=(), tolerance=0.02):
    """Return the verdict on five launches; ``slow_now`` of them are in a slow mode.

    ``before`` are the pairs of session and launch that were, too.
    """
    current = simulated_sessions(1, 5, slow=[(0, k) for k in range(slow_now)])[0]
    stored = simulated_sessions(sessions, 5, slow=before)
    return judge(current, stored, tolerance=tolerance, alpha=0.001)


@pytest.mark.parametrize(
    ("sessions", "slow_now", "confirmed"), [(16, 4, 4), (20, 1, 4), (80, 1, 3)]
)
def test_more_slow_launches_than_ever_are_suspect_and_never_a_regression(
    sessions, slow_now, confirmed
):
    verdict = slow_launches(slow_now, sessions=sessions)

    assert verdict.outcome is Outcome.SUSPECT
    assert verdict.chance == pytest.approx(1 / (sessions + 1))  # the rank among all sessions
    assert f"{confirmed} such sessions in a row" in verdict.reason


def test_a_suspect_by_its_slow_launches_has_the_ratio_of_all_launches_and_no_interval():
    verdict = slow_launches(4)

    assert verdict.ratio == pytest.approx(1.4 ** (4 / 5), rel=0.01)
    assert verdict.interval is None


def test_as_many_slow_launches_as_in_a_session_before_are_not_suspect():
    before = [(3, 0), (3, 2), (7, 1)]

    assert slow_launches(3, before=before).outcome is Outcome.SUSPECT
    for fewer in (0, 1, 2):
        assert slow_launches(fewer, before=before).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("slow_now", "outcome"), [(2, Outcome.IMPROVEMENT), (3, Outcome.UNDECIDED)]
)
def test_most_launches_slow_as_never_before_are_no_good_news(slow_now, outcome):
    """The fast launches are 30 % faster, and the others make up for it."""
    current = simulated_sessions(1, 5, slow=[(0, k) for k in range(slow_now)])[0]
    faster = [[0.7 * launch[0]] for launch in current]

    verdict = judge(faster, simulated_sessions(16, 5), tolerance=0.02, alpha=0.001)

    assert verdict.outcome is outcome


def test_slow_launches_that_cost_less_than_the_tolerance_are_not_suspect():
    assert slow_launches(1, tolerance=0.06).outcome is Outcome.SUSPECT  # of 1.4 ^ (1 ÷ 5)
    assert slow_launches(1, tolerance=0.08).outcome is Outcome.PASS


def test_one_mode_slower_is_suspect_at_the_chance_that_all_launches_are_in_the_slow_one():
    """A slow-down by as much as the slow mode of the baseline has a rank of 1 ÷ 13."""
    sessions = simulated_sessions(12, 5, slow=[(1, 2), (4, 0), (6, 3)])
    current = [[1.4 * launch[0]] for launch in simulated_sessions(1, 5)[0]]

    verdict = judge(current, sessions, tolerance=0.02, alpha=0.001)

    assert verdict.outcome is Outcome.SUSPECT
    assert verdict.chance == pytest.approx(1 / 13)


CONTROL_BEFORE = [[[0.002 * factor]] for factor in (1.0, 1.03, 0.96, 1.02, 0.98, 1.04, 0.97, 1.01)]


@pytest.mark.parametrize(
    ("step", "control", "outcome"),
    [
        (1.0, 0.9, Outcome.UNDECIDED),
        (1.015, 0.9, Outcome.UNDECIDED),
        (1.035, 0.9, Outcome.REGRESSION),
    ],
    ids=["the control moved alone", "the step by less than the tolerance", "the step moved too"],
)
def test_a_control_that_moved_alone_makes_nothing_suspect(step, control, outcome):
    """The step followed the control in every session before, and does not now."""
    baseline = [[[500 * figure[0][0]]] for figure in CONTROL_BEFORE]

    verdict = judge(
        [[step]],
        baseline,
        tolerance=0.02,
        alpha=0.001,
        control=[[0.002 * control]],
        baseline_control=CONTROL_BEFORE,
    )

    assert "is subtracted" in verdict.reason
    assert verdict.outcome is outcome


def moved_after(place, factor, *, sessions=8):
    """Return sessions that are ``factor`` times as slow from the one at ``place`` on."""
    return [
        [[(factor if number >= place else 1) * launch[0]] for launch in session]
        for number, session in enumerate(simulated_sessions(sessions, 5))
    ]


def test_the_sessions_after_a_move_within_the_reference_are_off_the_level():
    moved = moved_after(2, 1.1)

    verdict = judge(moved[5], moved, tolerance=0.02, alpha=0.001, reference=5)

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.off_level == (2, 3, 4, 5, 6, 7)
    assert verdict.ratio == pytest.approx(1.1, rel=0.002)
    assert "moved by +10.0 % after session 2," in verdict.reason


RESTLESS = np.array([1, 0.9, 1.1, 0.95, 1.05])  # too noisy to be significantly slower


def test_a_move_that_made_the_code_slower_is_a_regression_unless_the_session_rules_it_out():
    moved = moved_after(2, 1.1)

    def verdict(launches):
        current = [[float(launch)] for launch in launches]
        return judge(current, moved, tolerance=0.02, alpha=0.001, reference=5)

    undecided = verdict(RESTLESS)
    assert undecided.interval[0] < 1 < 1.1 < undecided.interval[1]
    assert undecided.outcome is Outcome.REGRESSION
    mended = verdict([launch[0] for launch in moved[0]])
    assert mended.interval[1] < 1.1
    assert mended.outcome is Outcome.PASS
    assert mended.off_level == undecided.off_level == (2, 3, 4, 5, 6, 7)


def test_a_move_that_made_the_code_faster_is_no_regression_of_an_undecided_session():
    moved = moved_after(2, 0.9)

    verdict = judge(
        [[float(0.9 * launch)] for launch in RESTLESS],
        moved,
        tolerance=0.02,
        alpha=0.001,
        reference=5,
    )

    assert verdict.outcome is Outcome.UNDECIDED
    assert "moved by -10.0 % after session 2," in verdict.reason
    assert verdict.off_level == (0, 1)


def test_without_a_move_no_stored_session_is_off_the_level():
    sessions = simulated_sessions(8, 5)

    assert judge(sessions[0], sessions, tolerance=0.02, alpha=0.001).off_level is None


def test_a_slow_down_below_the_tolerance_is_not_suspect():
    """Both are significant at 1 %, and at no lower level."""
    assert at(0.005).outcome is Outcome.SUSPECT
    difference = stats.t.isf(0.005, len(LEVELS) - 1) * ERROR
    assert at(0.005, tolerance=math.expm1(0.99 * difference)).outcome is Outcome.SUSPECT
    assert at(0.005, tolerance=math.expm1(1.01 * difference)).outcome is not Outcome.SUSPECT


@pytest.mark.parametrize("levels", [[0], [0] * 7, [0] * 9])
def test_a_level_must_be_given_for_each_session_of_the_baseline(levels):
    with pytest.raises(ValueError, match=r"session_levels must have the 8 sessions .*, not \d"):
        judge([[1.0]], BASELINE, tolerance=0.02, alpha=0.001, session_levels=levels)


def test_a_later_level_is_compared_with_and_the_older_one_informs_how_sessions_differ():
    old, new = simulated_sessions(8, 5), simulated_sessions(3, 5)
    slower = [[[1.3 * step[0]] for step in session] for session in new]
    arguments = {"tolerance": 0.02, "alpha": 0.001}
    levels = [0] * 8 + [1] * 3

    verdict = judge(slower[0], [*old, *slower], session_levels=levels, **arguments)
    alone = judge(slower[0], slower, **arguments)

    assert verdict.outcome is Outcome.PASS
    assert verdict.ratio == pytest.approx(1.0, abs=1e-6)
    assert verdict.minimum_detectable <= alone.minimum_detectable
