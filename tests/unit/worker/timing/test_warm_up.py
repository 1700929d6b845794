"""Extra warm-ups end when the step time is steady, or at their limits."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.case import MOST_EXTRA_WARMUPS
from ddp_perf.core.launch import WarmUp
from ddp_perf.worker.steps.plan import follow_plan
from ddp_perf.worker.timing.warm_up import until_steady


@pytest.mark.parametrize(
    ("step_s", "again"), [(0.0001, MOST_EXTRA_WARMUPS), (0.01, 20), (0.5, 1), (30.0, 1)]
)
def test_warm_up_repeats_a_fifth_of_a_second_of_steps(step_s, again):
    assert warm_up([step_s]).again == again


def warm_up(medians, window_s=0.1):
    """Run ``until_steady`` on windows with these medians, the last one repeated for ever."""
    windows = itertools.chain(medians, itertools.repeat(medians[-1]))

    def window():
        yield
        return next(windows), window_s

    return follow_plan(until_steady(window), lambda: None)


def test_warm_up_of_a_steady_step_takes_three_windows():
    assert warm_up([1.0]) == WarmUp(steps=30, steady=True, again=1)


def test_warm_up_of_a_falling_step_time_takes_three_windows_at_its_end():
    assert warm_up([2.0, 1.5, 1.2, 1.0]) == WarmUp(steps=60, steady=True, again=1)


@pytest.mark.parametrize(("share", "steps"), [(0.009, 30), (0.011, 60)])
def test_warm_up_windows_agree_within_one_per_cent(share, steps):
    assert warm_up([1 + share, 1.0, 1 + share, 1.0]) == WarmUp(steps=steps, steady=True, again=1)


def test_warm_up_needs_more_than_two_windows_that_agree():
    assert warm_up([2.0, 2.0, 1.0]).steps == 50


def test_warm_up_without_a_steady_step_ends_at_the_limit_and_reports_it():
    medians = [1.0, 1.5] * MOST_EXTRA_WARMUPS

    assert warm_up(medians) == WarmUp(steps=MOST_EXTRA_WARMUPS, steady=False, again=1)


def test_warm_up_of_long_steps_ends_at_the_limit_of_seconds():
    assert warm_up([1.0, 1.5] * 9, window_s=9.0) == WarmUp(steps=30, steady=False, again=1)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40), st.floats(1e-3, 100))
def test_warm_up_always_ends_within_its_limits_after_a_whole_window(medians, window_s):
    found = warm_up(medians, window_s)

    assert 10 <= found.steps <= MOST_EXTRA_WARMUPS
    assert found.steps % 10 == 0
