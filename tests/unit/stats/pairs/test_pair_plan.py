"""The plan of a paired test: its looks, and their levels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.stats.model_error import ModelError
from ddp_perf.stats.pairs import PairedPlan, plan_pair_looks
from ddp_perf.stats.sequential import look_levels


def plan_of(**changes) -> PairedPlan:
    return PairedPlan(**{"alpha": 0.01, "tolerance": 0.05, "looks": (6, 9, 14, 24), **changes})


@given(st.integers(1, 2000))
def test_looks_rise_to_all_pairs_and_are_few(most):
    looks = plan_pair_looks(most)

    assert looks[-1] == most
    assert list(looks) == sorted(set(looks))
    assert len(looks) < 16
    assert looks[0] == min(6, most)


def test_room_for_no_pair_is_an_error():
    with pytest.raises(ValueError, match="at least one pair"):
        plan_pair_looks(0)


@pytest.mark.parametrize(
    "changes",
    [
        {"alpha": 0.0},
        {"alpha": 0.5},
        {"alpha": float("nan")},
        {"tolerance": 0.0},
        {"tolerance": float("inf")},
        {"looks": ()},
        {"looks": (0, 6)},
        {"looks": (-1, 6)},
        {"looks": (6, 6)},
        {"looks": (9, 6)},
        {"model_error": ModelError(of_change=-0.1)},
        {"model_error": ModelError(of_change=1.0)},
        {"model_error": ModelError(of_step=-0.1)},
    ],
)
def test_a_plan_out_of_range_is_an_error(changes):
    with pytest.raises(ValueError, match=r"must be|must lie"):
        plan_of(**changes)


def test_levels_of_planned_looks_are_those_of_lan_and_demets():
    plan = plan_of()

    assert [plan.difference_level(look) for look in plan.looks] == pytest.approx(
        look_levels(0.01, plan.looks)
    )
    assert [plan.equivalence_level(look) for look in plan.looks] == pytest.approx(
        look_levels(0.05, plan.looks)
    )


@pytest.mark.parametrize("ended", [7, 12, 20])
def test_a_last_look_that_was_not_planned_keeps_the_error(ended):
    """Brownian motion: the looks that were reached, and the one at which the time was over."""
    plan = plan_of(alpha=0.1)
    looks = [*(look for look in plan.looks if look < ended), ended]
    sums = np.cumsum(np.random.default_rng(3).normal(size=(40_000, ended)), axis=1)

    crossed = [
        sums[:, look - 1] / np.sqrt(look) > stats.norm.isf(plan.difference_level(look))
        for look in looks
    ]

    spent = 0.1 * np.log1p((np.e - 1) * ended / 24)
    assert np.any(crossed, axis=0).mean() == pytest.approx(spent, abs=0.006)


def test_the_margin_is_the_same_for_either_order_of_sides():
    assert np.exp(plan_of().margin) == pytest.approx(1.05)
