"""The smallest set of changes that is slower, with a played oracle."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.duel.environments.probes import ProbeEffect, minimise


class Oracle:
    """A set is slower if it has every factor of one of the causes; it may be unresolved."""

    def __init__(self, *causes, unresolved=()):
        self.causes, self.unresolved = causes, [frozenset(one) for one in unresolved]
        self.asked = []

    def __call__(self, chosen):
        self.asked.append(chosen)
        if frozenset(chosen) in self.unresolved:
            return ProbeEffect.UNRESOLVED
        slower = any(set(cause) <= set(chosen) for cause in self.causes)
        return ProbeEffect.SLOWER if slower else ProbeEffect.NONE


@pytest.mark.parametrize("guilty", range(16))
def test_a_single_cause_is_found_by_halving(guilty):
    oracle = Oracle({guilty})

    assert minimise(range(16), oracle) == (guilty,)
    assert len(oracle.asked) <= 2 * math.log2(16)


def test_two_factors_that_act_only_together_are_found_as_a_set():
    assert minimise(range(8), Oracle({1, 6})) == (1, 6)


def test_a_set_that_does_not_run_is_no_evidence():
    halves = [range(4), range(4, 8)]

    assert minimise(range(8), Oracle({2}, unresolved=halves)) == (2,)


def test_nothing_smaller_runs():
    pairs = [{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}]

    assert minimise(range(3), Oracle({0}, unresolved=pairs)) == (0, 1, 2)


@st.composite
def oracles(draw):
    factors = range(draw(st.integers(1, 12)))
    sets = st.sets(st.sampled_from(factors), min_size=1)
    causes = draw(st.lists(sets, min_size=1, max_size=3))
    unresolved = draw(st.lists(sets.filter(lambda one: len(one) < len(factors)), max_size=20))
    return factors, Oracle(*causes, unresolved=unresolved)


@given(oracles())
def test_what_is_found_is_slower_and_is_not_without_any_of_its_factors(drawn):
    factors, oracle = drawn

    found = minimise(factors, oracle)

    assert oracle(found) is ProbeEffect.SLOWER
    if len(found) > 1:
        for one in found:
            assert oracle(tuple(other for other in found if other != one)) is not ProbeEffect.SLOWER
