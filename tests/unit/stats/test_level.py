"""The level of a launch is the expected fastest of ten clean steps, drawn at random."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.stats import launch_level
from ddp_perf.stats.level import FASTEST_OF, clean_steps

SECONDS = st.floats(1e-6, 1e3)
STEPS = st.lists(SECONDS, min_size=1, max_size=60)
A_FEW_MORE = st.lists(SECONDS, min_size=FASTEST_OF, max_size=FASTEST_OF + 4)


def mean_of_fastest(step_s):
    """Return the mean of the fastest of each draw of ten steps: the definition, by brute force."""
    return statistics.fmean(map(min, itertools.combinations(step_s, FASTEST_OF)))


@given(A_FEW_MORE)
def test_the_level_is_the_mean_of_the_fastest_of_every_draw(step_s):
    assert launch_level(step_s) == pytest.approx(mean_of_fastest(step_s), rel=1e-12)


@given(st.lists(SECONDS, min_size=1, max_size=FASTEST_OF))
def test_the_level_of_few_steps_is_the_fastest_one(step_s):
    assert launch_level(step_s) == pytest.approx(min(step_s), rel=1e-12)


@given(STEPS)
def test_the_level_lies_between_the_fastest_step_and_the_mean(step_s):
    level = launch_level(step_s)

    assert min(step_s) * (1 - 1e-12) <= level <= statistics.fmean(step_s) * (1 + 1e-12)


@given(STEPS, st.data())
def test_a_slower_step_never_lowers_the_level(step_s, data):
    slower = list(step_s)
    slower[data.draw(st.integers(0, len(step_s) - 1))] *= data.draw(st.floats(1, 10))

    assert launch_level(slower) >= launch_level(step_s) * (1 - 1e-12)


@given(STEPS, st.floats(0.01, 100))
def test_the_level_grows_with_the_steps(step_s, factor):
    grown = [factor * seconds for seconds in step_s]

    assert launch_level(grown) == pytest.approx(factor * launch_level(step_s), rel=1e-9)


@given(STEPS, st.randoms(use_true_random=False))
def test_the_order_of_the_steps_does_not_count(step_s, dice):
    assert launch_level(dice.sample(step_s, len(step_s))) == launch_level(step_s)


def test_the_level_does_not_fall_with_the_number_of_steps():
    """The fastest of 10 steps of the exponential law is a tenth of its mean above the least step.

    A minimum would be a twentieth above it with 20 steps, and a hundredth with 100.
    """
    dice = random.Random(16)

    def levels(steps):
        return [launch_level([1 + dice.expovariate(1) for _ in range(steps)]) for _ in range(2_000)]

    for steps in (10, 20, 100):
        drawn = levels(steps)
        error = statistics.stdev(drawn) / math.sqrt(len(drawn))
        assert abs(statistics.fmean(drawn) - 1.1) < 5 * error < 0.02


@given(st.lists(st.tuples(SECONDS, st.booleans()), min_size=1, max_size=40))
def test_disturbed_steps_are_left_out_if_five_others_remain(steps):
    step_s, disturbed = zip(*steps, strict=True)
    clean = [seconds for seconds, was in steps if not was]
    counted = clean if len(clean) >= 5 else list(step_s)

    assert list(clean_steps(step_s, disturbed)) == counted
    assert launch_level(step_s, disturbed) == launch_level(counted)


def test_too_few_clean_steps_count_with_the_disturbed_ones():
    """Five clean steps are a level of their own, and beside four every step counts."""
    step_s = [2.0] * 5 + [1.0] * 55

    assert launch_level(step_s, [False] * 5 + [True] * 55) == pytest.approx(2.0)
    assert launch_level(step_s, [True] + [False] * 4 + [True] * 55) < 1.1


@pytest.mark.parametrize("disturbed", [None, [], ()], ids=["none", "empty list", "empty tuple"])
def test_without_a_witness_every_step_counts(disturbed):
    assert launch_level([1.0] * 12, disturbed) == pytest.approx(1.0)


def test_the_level_stays_where_neighbours_move_the_median():
    """Of 60 steps 36 take five times as long: one draw of 300 has no other step."""
    step_s = [0.050] * 36 + [0.010] * 24

    assert launch_level(step_s) == pytest.approx(0.010, rel=0.02)
    assert statistics.median(step_s) == 0.050


def test_arrays_are_steps_and_witnesses_too():
    step_s, disturbed = np.array([0.01] * 10 + [0.02]), np.array([True] + [False] * 10)

    assert launch_level(step_s, disturbed) == pytest.approx(0.01)
    assert launch_level(step_s, np.array([])) == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize(
    ("step_s", "disturbed", "said"),
    [
        ([], None, "0 steps"),
        ([], [], "0 steps"),
        ([0.1, 0.1], [False], "2 steps, 1 witnesses"),
        ([0.1], [False, True], "1 steps, 2 witnesses"),
    ],
)
def test_no_step_and_witnesses_of_other_steps_are_errors(step_s, disturbed, said):
    with pytest.raises(ValueError, match=said):
        launch_level(step_s, disturbed)
