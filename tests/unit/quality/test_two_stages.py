"""The simulation of both stages of a session: its draws, its shortcuts, and what it counts."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.stats.duel.judge_pairs import judge_pairs
from ddp_perf.stats.rule.judge import judge_figures
from ddp_perf.stats.rule.two_stages import settled_outcome
from tests.quality.two_stage_machines import (
    METRICS,
    Machine,
    draw_pairs,
    draw_sessions,
    slowed,
)
from tests.quality.two_stages import (
    LOOKS,
    MACHINES,
    RATE,
    TOLERANCE,
    could_be_red,
    inside,
    is_screened,
    may_be_red,
    plans_of,
    settle,
    simulate,
)

QUIET = Machine(name="quiet", session=0.0, launch=0.0)
PASS = Verdict(outcome=Outcome.PASS, reason="", ratio=1.0, interval=(0.98, 1.02), upper=1.02)


@pytest.fixture
def random():
    return np.random.default_rng(1)


@pytest.mark.parametrize("cases", [1, 5, 120])
def test_the_plans_of_all_screened_cases_spend_three_quarters_of_the_rate(cases):
    plans = plans_of(cases)

    assert cases * sum(plan.alpha for plan in plans) == pytest.approx(0.75 * RATE)
    assert plans[0].alpha == pytest.approx(3 * sum(plan.alpha for plan in plans[1:]))


def test_the_spreads_are_those_of_the_machine(random):
    machine = Machine(name="", cases=4000, session=0.02, launch=0.01, alike=0.0)

    logs = draw_sessions(machine, random)

    assert logs.shape == (len(METRICS), 4000, 6, 5)
    assert logs[0].std(axis=-1, ddof=1).mean() == pytest.approx(0.0094, rel=0.02)  # c₄(5) × 1 %
    assert logs[0].std() == pytest.approx(math.hypot(0.02, 0.01), rel=0.02)
    assert logs[3].std() == pytest.approx(0.1 * logs[0].std(), rel=0.05)


def test_the_cases_of_a_session_are_as_alike_as_stated(random):
    machine = Machine(name="", cases=2, stored=5000, launch=0.0, alike=0.9)

    first, second = draw_sessions(machine, random)[0].mean(axis=-1)

    assert np.corrcoef(first, second)[0, 1] == pytest.approx(0.9, abs=0.02)


def test_a_slow_launch_is_slow_in_all_metrics_of_the_step(random):
    machine = msgspec.structs.replace(QUIET, slow=(0.25, 0.2), cases=500)

    step, tail, efficiency, memory = draw_sessions(machine, random)

    assert np.unique(step) == pytest.approx([0, math.log(1.2)])
    assert (step > 0).mean() == pytest.approx(0.25, abs=0.02)
    assert np.array_equal(step, efficiency)
    assert not tail.any()
    assert not memory.any()


def test_a_day_drifts_for_all_cases_alike_and_pairs_feel_a_launch_of_it(random):
    machine = msgspec.structs.replace(QUIET, drift=0.02, cases=3, stored=400)

    sessions = draw_sessions(machine, random)[0]
    pairs = draw_pairs(machine, random, 2000, LOOKS)

    assert sessions.std() == pytest.approx(0.02 * math.sqrt(4 / 3), rel=0.1)  # trend and state
    assert np.corrcoef(sessions[0].ravel(), sessions[1].ravel())[0, 1] > 0.9
    assert pairs[0].std() == pytest.approx(0.02 * math.sqrt(0.2), rel=0.05)
    assert not pairs[1].any()


def test_servers_are_new_as_in_a_duel(random):
    machine = msgspec.structs.replace(QUIET, servers=0.01)

    pairs = draw_pairs(machine, random, 1, LOOKS)[0, 0]

    changes = np.flatnonzero(np.diff(pairs)) + 1
    assert changes.tolist() == [3, 6, 9, 12, 15, 18, 21]


def test_slower_code_is_slower_in_the_metrics_of_the_step_alone():
    logs = slowed(np.zeros((len(METRICS), 2, 3)), 0.1)

    assert np.exp(logs[:, 0, 0]) == pytest.approx([1.1, 1.0, 1.1, 1.0])
    assert np.ptp(logs, axis=(1, 2)).tolist() == [0, 0, 0, 0]


@given(st.lists(st.lists(st.floats(1.0, 1.06), min_size=5, max_size=5), min_size=3, max_size=8))
def test_launches_within_the_tolerance_are_never_red(sessions):
    verdict = judge_figures(sessions[-1], sessions[:-1], tolerance=TOLERANCE, alpha=0.01)

    if not could_be_red(np.array(sessions)):
        assert verdict.outcome is not Outcome.REGRESSION


@settings(max_examples=300)
@given(
    st.integers(0, 10**6), st.floats(0.005, 0.3), st.floats(0.0, 0.1), st.sampled_from([1, 5, 120])
)
def test_no_red_case_is_left_out_before_its_pairs_are_judged(seed, spread, shift, cases):
    plan = plans_of(cases)[0]
    logs = np.random.default_rng(seed).standard_t(3, (5, LOOKS[-1])) * spread + shift

    for one, may_be in zip(logs, may_be_red(logs, plan), strict=True):
        outcome = settled_outcome(judge_pairs(one.tolist(), plan), Outcome.PASS, TOLERANCE)
        assert may_be or outcome is not Outcome.REGRESSION


def test_a_case_is_screened_by_its_times_but_not_by_its_memory():
    suspect = Verdict(outcome=Outcome.SUSPECT, reason="", ratio=1.1, chance=0.001)

    assert is_screened([PASS, PASS, suspect, PASS])
    assert not is_screened([PASS, PASS, PASS, suspect])


def test_pairs_settle_each_metric_of_a_case():
    red = msgspec.structs.replace(PASS, outcome=Outcome.REGRESSION)
    equal = np.zeros((len(METRICS), LOOKS[-1]))
    noisy = np.tile([0.5, -0.5], LOOKS[-1] // 2) + np.zeros_like(equal)

    mended = settle([red, PASS, PASS, PASS], equal, plans_of(1))
    stays = settle([red, PASS, PASS, PASS], noisy, plans_of(1))
    slower = settle([PASS] * 4, slowed(equal, 0.2), plans_of(1))

    assert (mended.red, mended.by_pairs, mended.pairs) == (False, False, 6)
    assert (stays.red, stays.by_pairs, stays.pairs) == (True, False, LOOKS[-1])
    assert (slower.red, slower.by_pairs) == (True, True)


def test_a_machine_without_noise_raises_no_alarm_and_finds_every_slow_down(random):
    counted = simulate(msgspec.structs.replace(QUIET, cases=2), random, power=True)

    assert (counted["sessions"], counted["tries"]) == (1, 1)
    assert not any(counted[what] for what in ("alone", "first", "second", "both", "screened"))
    assert all(counted[f"both {by}"] == counted[f"alone {by}"] == 1 for by in (0.06, 0.1, 0.5))


@pytest.mark.parametrize(
    ("alarms", "trials", "said"),
    [(0, 300, "not contradicted"), (0, 400, "shown"), (10, 300, "EXCEEDED")],
)
def test_a_row_says_what_its_alarms_show(alarms, trials, said):
    assert inside(alarms, trials) == said


def test_no_machine_is_named_twice():
    assert len({machine.name for machine in MACHINES}) == len(MACHINES)
