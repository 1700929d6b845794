"""The change of each term in pairs: what both launches of a pair share cancels."""

from __future__ import annotations

import pytest

from ddp_perf.stats.step_change import paired_terms
from tests.builders import make_decomposition


def changes(*pairs):
    return {term.name: term for term in paired_terms(pairs)}


def test_a_term_that_grew_in_each_pair_is_certain_although_launches_differ():
    pairs = [
        (make_decomposition(backward=mood), make_decomposition(backward=mood + grown))
        for mood, grown in ((0.004, 0.0010), (0.008, 0.0011), (0.005, 0.0009), (0.009, 0.0010))
    ]
    found = changes(*pairs)
    assert found["backward"].change == pytest.approx(0.001)
    assert found["backward"].is_certain
    assert not found["forward"].is_certain


def test_the_uncertainty_is_students_of_the_differences():
    grown = (0.001, 0.002, 0.003)
    pairs = [(make_decomposition(), make_decomposition(data=0.001 + one)) for one in grown]
    # sd 0.001 ÷ √3 × t of 2 degrees of freedom at 0.05 ÷ 8 ÷ 2: 12.59
    assert changes(*pairs)["data"].uncertainty == pytest.approx(0.00727, rel=0.01)


def test_two_pairs_show_no_spread():
    pair = (make_decomposition(), make_decomposition())
    assert changes(pair, pair) == {}
