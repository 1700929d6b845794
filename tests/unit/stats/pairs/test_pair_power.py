"""What pairs can find: the power of the plan, by simulation and by the verdict itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.stats.model_error import MODEL_ERROR, ModelError
from ddp_perf.stats.pairs import judge_pairs, minimum_detectable, pairs_to_decide
from tests.unit.stats.pairs.test_judge_pairs import plan_of, spread


@pytest.mark.parametrize(("sd", "looks"), [(0.01, (6, 12)), (0.06, (6, 12)), (0.1, (8,))])
def test_nine_of_ten_minimum_detectable_slow_downs_are_found(sd, looks):
    plan, random = plan_of(looks=looks), np.random.default_rng(4)
    logs = random.normal(math.log1p(minimum_detectable(sd, plan)), sd, (300, looks[-1]))

    found = sum(judge_pairs(row.tolist(), plan).outcome is DuelOutcome.SLOWER for row in logs)

    assert found > 253  # 270 are stated
    assert sd == 0.01 or found < 292


@pytest.mark.parametrize("error", [MODEL_ERROR, ModelError(of_step=0.08), ModelError(0.2, 0.05)])
def test_slow_downs_beyond_the_error_of_a_model_are_found(error):
    plan, random = plan_of(looks=(10,), model_error=error), np.random.default_rng(4)
    least, exact = (minimum_detectable(0.06, one) for one in (plan, plan_of(looks=(10,))))
    logs = random.normal(math.log1p(least), 0.06, (300, 10))

    found = sum(judge_pairs(row.tolist(), plan).outcome is DuelOutcome.SLOWER for row in logs)

    assert least > exact
    assert 253 < found < 292  # 270 are stated


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_larger_spread_finds_no_smaller_slow_down(one, other):
    small, large = sorted((one, other))

    assert minimum_detectable(small, plan_of()) <= minimum_detectable(large, plan_of())


def test_nothing_below_the_tolerance_is_slower_where_nothing_differs_by_chance():
    assert minimum_detectable(0.0, plan_of()) == pytest.approx(0.05)


def test_one_pair_finds_nothing():
    assert minimum_detectable(0.01, plan_of(looks=(1,))) is None


@pytest.mark.parametrize("sd", [-0.1, math.nan, math.inf])
def test_a_spread_out_of_range_is_an_error(sd):
    with pytest.raises(ValueError, match="spread"):
        minimum_detectable(sd, plan_of())


@pytest.mark.parametrize("error", [ModelError(), ModelError(0.2, 0.03)])
@pytest.mark.parametrize(("mean", "sd"), [(0.08, 0.1), (0.0, 0.08), (0.2, 0.2)])
def test_so_many_further_pairs_decide(mean, sd, error):
    """The same mean and spread in more pairs, in a plan that ends there."""
    plan = plan_of(looks=(6,), model_error=error)
    verdict = judge_pairs(spread(mean, sd, 6), plan)

    assert verdict.outcome is DuelOutcome.UNDECIDED
    pairs = 6 + verdict.more_pairs
    for count, decided in ((pairs, True), (pairs - 2, False)):
        logs = spread(mean, sd, count)
        later = judge_pairs(logs, plan_of(looks=(count,), model_error=error))
        assert (later.outcome is not DuelOutcome.UNDECIDED) is decided


def test_further_pairs_go_to_the_next_planned_look():
    assert pairs_to_decide(0.2, 0.1, 6, plan_of()) in {3, 8, 18}


def test_no_number_of_pairs_decides_without_end():
    assert pairs_to_decide(math.log(1.05), 50.0, 6, plan_of()) is None


def test_no_number_of_pairs_decides_within_the_error_of_a_model():
    assert pairs_to_decide(0.0, 1e-6, 6, plan_of(model_error=ModelError(of_step=0.06))) is None
