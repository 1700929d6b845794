"""The difference and its variance components, computed by hand from the sessions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.rule.comparison import JudgeOptions
from ddp_perf.stats.rule.levels import levels_of
from ddp_perf.stats.rule.statistic import judged_difference


def judged(sessions, *, reference, tolerance=0.02, alpha=0.001, **options):
    levels = levels_of(sessions, tolerance)
    asked = JudgeOptions(tolerance=tolerance, alpha=alpha, reference=reference, **options)
    return judged_difference(levels, None, asked, alpha=alpha)


# Sessions of two, four and one launch, and the current one of two.
SESSIONS = [[1.0, 1.01], [1.0, 1.01, 1.0, 1.01], [1.005], [1.02, 1.03]]


def test_launch_noise_is_the_launch_variance_over_the_number_of_launches():
    errors = judged(SESSIONS, reference=3).errors

    within = [np.log(launches) - np.mean(np.log(launches)) for launches in SESSIONS]
    pooled = sum(float(rest @ rest) for rest in within) / (1 + 3 + 0 + 1)
    assert errors.launch_variance == pytest.approx(pooled)
    stored = sum(float(rest @ rest) for rest in within[:-1]) / (1 + 3 + 0)
    assert errors.baseline_launch_noise == pytest.approx(stored * (1 / 2 + 1 / 4 + 1) / 3)
    assert (errors.launches, errors.reference_sessions) == (2, 3)


@pytest.mark.parametrize("reference", [1, 2, 3])
def test_the_difference_is_from_the_median_level_of_the_reference(reference):
    found = judged(SESSIONS, reference=reference)

    levels = [float(np.mean(np.log(launches))) for launches in SESSIONS]
    expected = levels[-1] - float(np.median(levels[:reference]))
    assert found.comparison.difference == pytest.approx(expected)
    assert found.overall == pytest.approx(expected)  # no launch is in a slow mode
    assert not math.isclose(found.comparison.difference, 0.0)


def test_one_slow_reference_session_of_five_hardly_moves_the_level():
    quiet = [[1.0 + 0.001 * i] * 2 for i in (0, 3, 1, 2, 4, 2, 1, 3)]
    moved = [*quiet[:2], [1.5, 1.5], *quiet[3:]]

    before, after = (judged([*s, [1.0, 1.0]], reference=5).raw for s in (quiet, moved))

    assert after == pytest.approx(before, abs=0.001)


def figures(count, *, launches=5, sd=0.01, seed=0, session=0.002):
    random = np.random.default_rng(seed)
    logs = random.normal(0, session, (count, 1)) + random.normal(0, sd, (count, launches))
    return np.exp(logs).tolist()


@pytest.mark.parametrize(("p", "own"), [(0.049, True), (0.051, False)])
def test_launches_that_differ_more_than_before_count_by_themselves(p, own):
    """This session's own variance ÷ that of the stored sessions, by an F test at 5 %."""
    before, current = figures(8), figures(1, seed=9)[0]
    pooled = sum(float(np.var(np.log(session)) * 5) for session in before)
    around = np.log(current) - np.mean(np.log(current))
    alone = float(around @ around) / 4
    wanted = stats.f.isf(p, 4, 32) * pooled / 32
    current = np.exp(np.mean(np.log(current)) + around * math.sqrt(wanted / alone))

    errors = judged([*before, current.tolist()], reference=5, tolerance=0.5).errors

    assert errors.launch_variance == pytest.approx(wanted if own else (pooled + 4 * wanted) / 36)
    assert errors.launch_df == (4 if own else 36)


def test_launches_that_differ_less_than_before_change_nothing():
    before = figures(8)

    errors = judged([*before, [1.0, 1.0001, 1.0, 1.0001, 1.0]], reference=5).errors

    assert errors.launch_df == 36


def test_later_levels_begin_anew_and_the_sessions_before_inform_the_variance_only():
    old = figures(6, seed=1)
    new = [[1.3 * value for value in session] for session in figures(4, seed=2)]
    current = [1.3 * value for value in figures(1, seed=3)[0]]

    found = judged([*old, *new, current], reference=5, session_levels=[0] * 6 + [1] * 4)

    medians = [float(np.mean(np.log(session))) for session in new]
    assert found.raw == pytest.approx(np.mean(np.log(current)) - np.median(medians))
    assert found.errors.reference_sessions == 4
    assert found.errors.spread.variance < 0.01**2  # by 13 % if both levels were one
    assert found.errors.spread.degrees_of_freedom == 8  # 5 and 3, around two levels


def test_sessions_of_an_older_level_inform_as_many_degrees_of_freedom_as_they_have():
    sessions = figures(10, seed=4)

    one, two = (
        judged([*sessions, [1.0] * 5], reference=5, session_levels=numbers).errors.spread
        for numbers in ((), [0] * 4 + [1] * 6)
    )

    assert (one.degrees_of_freedom, two.degrees_of_freedom) == (9, 8)


def test_a_later_move_within_the_reference_leaves_the_faster_part_as_the_level():
    sessions = figures(8, sd=0.002)
    for session in sessions[2:]:
        session[:] = [1.2 * value for value in session]
    current = [1.2] * 5

    found = judged([*sessions, current], reference=5)

    assert found.move.after == 2
    assert found.off_level == (2, 3, 4, 5, 6, 7)
    faster = [float(np.mean(np.log(session))) for session in sessions[:2]]
    assert found.raw == pytest.approx(math.log(1.2) - np.median(faster))
    assert found.errors.reference_sessions == 2
