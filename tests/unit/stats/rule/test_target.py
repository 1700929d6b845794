"""An absolute target: met, missed or undecided by the interval of a session's launches."""

from __future__ import annotations

import numpy as np
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.rule.target import judge_target
from tests.simulated_targets import error_rates

ABOUT_100 = [99.0, 100.0, 101.0, 100.0, 100.0]


@pytest.mark.parametrize(
    ("bound", "at_least", "outcome"),
    [
        (95.0, True, Outcome.MEETS_TARGET),
        (105.0, True, Outcome.MISSES_TARGET),
        (100.2, True, Outcome.UNDECIDED),
        (99.8, False, Outcome.UNDECIDED),
        (95.0, False, Outcome.MISSES_TARGET),
        (105.0, False, Outcome.MEETS_TARGET),
    ],
)
def test_the_interval_decides(bound, at_least, outcome):
    judged = judge_target(ABOUT_100, bound, at_least=at_least)

    assert judged.outcome is outcome
    low, high = judged.interval
    assert judged.value == pytest.approx(100.0, rel=1e-3)
    assert low < judged.value < high
    assert (low <= bound <= high) is (outcome is Outcome.UNDECIDED)


def test_the_interval_is_that_of_student_on_the_log_scale():
    judged = judge_target([90.0, 100.0], 1.0, at_least=True)

    logs = np.log([90.0, 100.0])
    margin = 63.657 * logs.std(ddof=1) / np.sqrt(2)  # the 99.5 % quantile of t with one df
    assert np.log(judged.interval) == pytest.approx(
        [logs.mean() - margin, logs.mean() + margin], rel=1e-4
    )


def test_equal_figures_are_decided_and_the_bound_itself_meets_it():
    assert judge_target([14e9] * 3, 14e9, at_least=False).outcome is Outcome.MEETS_TARGET
    assert judge_target([14e9 + 1] * 3, 14e9, at_least=False).outcome is Outcome.MISSES_TARGET


def test_one_launch_shows_no_spread():
    judged = judge_target([50.0], 100.0, at_least=True)

    assert (judged.outcome, judged.interval) == (Outcome.UNDECIDED, None)
    assert judged.more_launches == 2


def test_the_launches_that_would_decide_do_decide_if_mean_and_spread_stay():
    logs = np.array([-0.01, 0.0, 0.01])
    judged = judge_target(100 * np.exp(logs), 99.0, at_least=True)
    launches = 3 + judged.more_launches
    scores = np.resize([-1.0, 1.0], launches) if launches % 2 == 0 else None
    if scores is None:
        scores = np.append(np.resize([-1.0, 1.0], launches - 1), 0.0)
    later = 100 * np.exp(0.01 * scores / scores.std(ddof=1))

    assert judged.outcome is Outcome.UNDECIDED
    assert judged.likely_launches >= judged.more_launches
    assert judge_target(later, 99.0, at_least=True).outcome is Outcome.MEETS_TARGET
    assert judge_target(later[:-2], 99.0, at_least=True).outcome is Outcome.UNDECIDED


def test_a_mean_at_the_bound_is_decided_by_no_number_of_launches():
    assert judge_target([99.0, 100.0, 1e4 / 99], 100.0, at_least=True).more_launches is None


def test_a_first_look_needs_more_than_a_single_one():
    alone = judge_target(ABOUT_100, 95.0, at_least=True)
    first = judge_target(ABOUT_100, 95.0, at_least=True, looks=(5, 20))

    assert first.interval[0] < alone.interval[0]
    assert first.interval[1] > alone.interval[1]


@pytest.mark.parametrize("machine", ["normal", "t with 3 df"])
@pytest.mark.parametrize("looks", [(5,), (5, 20)])
def test_a_session_exactly_at_its_target_is_decided_wrongly_once_in_a_hundred_at_most(
    machine, looks
):
    """Both errors have a rate of 0.5 %; 40 of 2,000 would be unlikely at 1 %."""
    met, missed = error_rates(machine, looks, at=0.0, trials=2000, seed=7)

    assert met < 40
    assert missed < 40
