"""The verdict on pairs: against Student's t of scipy, and its rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.stats.model_error import ModelError
from ddp_perf.stats.pairs import PairedPlan, judge_pairs

FASTER, EQUIVALENT, SLOWER, UNDECIDED = (
    DuelOutcome.FASTER,
    DuelOutcome.EQUIVALENT,
    DuelOutcome.SLOWER,
    DuelOutcome.UNDECIDED,
)
OPPOSITE = {FASTER: SLOWER, SLOWER: FASTER, EQUIVALENT: EQUIVALENT, UNDECIDED: UNDECIDED}
LOGS = st.lists(st.floats(-0.3, 0.3, allow_subnormal=False), max_size=30)


def plan_of(**changes) -> PairedPlan:
    return PairedPlan(**{"alpha": 0.01, "tolerance": 0.05, "looks": (6, 9, 14, 24), **changes})


def spread(mean: float, sd: float, pairs: int) -> list[float]:
    """Return normal scores with exactly this mean and sd."""
    scores = stats.norm.ppf((np.arange(pairs) + 0.5) / pairs)
    return (mean + sd * scores / scores.std(ddof=1)).tolist()


@pytest.mark.parametrize("mean", [-0.08, -0.03, 0.0, 0.02, 0.045, 0.06, 0.2])
@pytest.mark.parametrize("sd", [0.01, 0.05, 0.15])
def test_one_look_is_students_test_and_two_one_sided_tests(mean, sd):
    logs, margin = spread(mean, sd, 10), math.log(1.05)
    slower = stats.ttest_1samp(logs, 0, alternative="greater").pvalue < 0.01
    faster = stats.ttest_1samp(logs, 0, alternative="less").pvalue < 0.01
    within = (
        stats.ttest_1samp(logs, margin, alternative="less").pvalue < 0.05
        and stats.ttest_1samp(logs, -margin, alternative="greater").pvalue < 0.05
    )

    verdict = judge_pairs(logs, plan_of(looks=(10,)))

    differs = SLOWER if slower else FASTER if faster else UNDECIDED
    assert verdict.outcome is (EQUIVALENT if within else differs)
    confidence = 0.9 if within else 0.98
    ends = stats.t.interval(confidence, 9, mean, sd / math.sqrt(10))
    assert verdict.interval == pytest.approx(np.exp(ends))
    assert verdict.confidence == pytest.approx(confidence)
    assert verdict.ratio == pytest.approx(math.exp(mean))


def test_a_model_widens_the_interval_by_its_shares_of_the_change_and_of_the_step():
    logs = spread(math.log(1.5), 0.01, 10)
    modelled = judge_pairs(logs, plan_of(looks=(10,), model_error=ModelError(0.2, 0.03)))
    exact = judge_pairs(logs, plan_of(looks=(10,)))

    assert exact.outcome is modelled.outcome is SLOWER
    halves = [math.log(one.interval[1] / one.interval[0]) / 2 for one in (exact, modelled)]
    assert halves[1] == pytest.approx(math.hypot(halves[0], 0.2 * math.log(1.5), 0.03))


@pytest.mark.parametrize(
    ("mean", "of_step", "outcome"),
    [
        (0.0, 0.025, EQUIVALENT),
        (0.024, 0.025, UNDECIDED),
        (0.026, 0.025, SLOWER),
        (-0.026, 0.025, FASTER),
        (0.0, 0.06, UNDECIDED),
        (0.059, 0.06, UNDECIDED),
        (-0.061, 0.06, FASTER),
    ],
)
def test_a_model_decides_nothing_within_its_error(mean, of_step, outcome):
    plan = plan_of(looks=(10,), model_error=ModelError(of_step=of_step))

    assert judge_pairs(spread(mean, 1e-6, 10), plan).outcome is outcome


@given(LOGS, st.booleans())
def test_the_sides_may_change_places(logs, ended):
    one = judge_pairs(logs, plan_of(), ended=ended)
    other = judge_pairs([-log for log in logs], plan_of(), ended=ended)

    assert other.outcome is OPPOSITE[one.outcome]
    assert other.pairs == one.pairs
    if one.ratio is not None:
        assert other.ratio == pytest.approx(1 / one.ratio)


@given(LOGS)
def test_the_first_look_that_decides_is_final(logs):
    plan = plan_of()
    verdicts = [judge_pairs(logs[:count], plan) for count in range(len(logs) + 1)]
    decided = [verdict for verdict in verdicts if verdict.outcome is not UNDECIDED]

    assert all(verdict == decided[0] for verdict in decided)
    assert all(verdict.pairs in plan.looks for verdict in decided)
    assert not decided or verdicts[-1] == decided[0]


@given(LOGS)
def test_the_interval_agrees_with_the_outcome(logs):
    verdict = judge_pairs(logs, plan_of(), ended=True)
    if verdict.interval is None:
        return
    low, high = verdict.interval

    assert low <= verdict.ratio * (1 + 1e-12)
    assert verdict.ratio <= high * (1 + 1e-12)
    if verdict.outcome is EQUIVALENT:
        assert low >= 1 / 1.05 - 1e-9
        assert high <= 1.05 + 1e-9
    else:
        assert (low > 1, high < 1) == (verdict.outcome is SLOWER, verdict.outcome is FASTER)


def test_between_two_looks_nothing_is_decided_unless_the_pairs_ended_there():
    logs = spread(0.2, 0.02, 8)
    plan = plan_of(looks=(10, 20))

    assert judge_pairs(logs, plan).outcome is UNDECIDED
    ended = judge_pairs(logs, plan, ended=True)
    assert (ended.outcome, ended.pairs) == (SLOWER, 8)


def test_pairs_beyond_the_plan_do_not_count():
    logs = [*spread(0.0, 0.5, 24), *[1.0] * 100]

    verdict = judge_pairs(logs, plan_of(looks=(24,)), ended=True)

    assert (verdict.outcome, verdict.pairs) == (UNDECIDED, 24)


def test_a_small_difference_is_equivalent_and_stated():
    verdict = judge_pairs(spread(0.02, 0.004, 6), plan_of())

    assert verdict.outcome is EQUIVALENT
    assert verdict.reason == "B takes 2.0 % more, which is within ± 5 %, in 6 pairs"


@pytest.mark.parametrize(
    ("log", "outcome"),
    [(0.0, EQUIVALENT), (0.02, EQUIVALENT), (-0.02, EQUIVALENT), (0.12, SLOWER), (-0.12, FASTER)],
)
def test_equal_pairs_have_no_spread_and_an_honest_verdict(log, outcome):
    verdict = judge_pairs([log] * 6, plan_of())

    assert verdict.outcome is outcome
    assert verdict.interval == pytest.approx((math.exp(log), math.exp(log)))


def test_a_few_equal_pairs_are_too_few():
    """Two modes give three equal differences once in 64 times."""
    verdict = judge_pairs([0.12] * 3, plan_of(looks=(3,)))

    assert verdict.outcome is UNDECIDED
    assert verdict.interval is None
    assert verdict.reason == "3 pairs are too few to show a difference"


def test_even_modes_are_no_difference():
    """Of six pairs of launches in two even modes, four have the same gap once in 26 times."""
    logs = [0.3, 0.3, 0.0, 0.3, 0.0, 0.3]

    assert judge_pairs(logs, plan_of()).outcome is UNDECIDED


def test_a_launch_in_a_slow_mode_does_not_hide_the_rest():
    logs = [*spread(0.1, 0.01, 8), -0.2]

    verdict = judge_pairs(logs, plan_of(looks=(9,)))

    assert (verdict.outcome, verdict.apart) == (SLOWER, 1)
    assert "1 set apart" in verdict.reason


@pytest.mark.parametrize("pairs", [0, 1, 2])
def test_hardly_any_pairs_are_undecided(pairs):
    verdict = judge_pairs([0.5] * pairs, plan_of(), ended=True)

    assert verdict.outcome is UNDECIDED
    assert verdict.pairs == pairs


@pytest.mark.parametrize("log", [math.nan, math.inf, -math.inf])
def test_a_log_that_is_not_finite_is_an_error(log):
    with pytest.raises(ValueError, match="finite"):
        judge_pairs([0.0, log], plan_of())


def test_all_looks_together_raise_false_alarms_at_alpha():
    """Each look at the whole alpha would raise 19 % of SLOWER; 60 of 400 is above chance."""
    random = np.random.default_rng(1)
    plan = plan_of(alpha=0.1, tolerance=1e-6)

    outcomes = [judge_pairs(random.normal(0, 0.1, 24).tolist(), plan).outcome for _ in range(400)]

    assert 15 < outcomes.count(SLOWER) < 60
    assert 15 < outcomes.count(FASTER) < 60


def test_at_the_tolerance_equivalent_is_wrong_one_time_in_twenty():
    random = np.random.default_rng(2)
    logs = random.normal(math.log(1.05), 0.08, (600, 24))
    plan = plan_of(alpha=1e-9)

    wrong = sum(judge_pairs(row.tolist(), plan).outcome is EQUIVALENT for row in logs)

    assert 10 < wrong < 48  # 30 are stated
