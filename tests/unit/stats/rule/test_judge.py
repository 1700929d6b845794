"""The rule as a whole: each outcome, on machines of known spread."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from ddp_perf.core.verdict import Outcome, SessionPrior
from ddp_perf.stats.level import launch_level
from tests.judging import judge, judge_by_figures
from tests.unit.stats.rule.machine import scaled, simulated_sessions

RULE = {"tolerance": 0.02, "alpha": 0.001}


def outcomes(slow_down, *, trials=60, sessions=8, prior=None, **machine):
    found = []
    for seed in range(trials):
        *baseline, current = simulated_sessions(sessions + 1, seed=seed, **machine)
        current = scaled(current, slow_down)
        found.append(judge(current, baseline, prior=prior, **RULE).outcome)
    return found


def test_unchanged_code_passes_on_a_quiet_machine():
    found = outcomes(1.0)
    assert found.count(Outcome.PASS) >= 57
    assert Outcome.REGRESSION not in found


@pytest.mark.parametrize(
    ("slow_down", "least", "least_suspect"), [(1.03, 90, 255), (1.05, 264, 299), (1.10, 300, 300)]
)
def test_slow_downs_are_found_or_are_suspect(slow_down, least, least_suspect):
    found = outcomes(slow_down, trials=300)
    assert found.count(Outcome.REGRESSION) >= least
    assert found.count(Outcome.REGRESSION) + found.count(Outcome.SUSPECT) >= least_suspect


def test_slow_down_never_passes():
    for machine in ({}, {"session": 0.03}, {"launch": 0.04}, {"slow_share": 0.3}):
        assert Outcome.PASS not in outcomes(1.10, **machine)


def test_false_alarms_are_rare_on_a_noisy_machine():
    assert outcomes(1.0, trials=300, session=0.02, launch=0.02).count(Outcome.REGRESSION) <= 2


def test_slow_down_is_found_beside_a_slow_mode():
    found = outcomes(1.2, trials=100, slow_share=0.3)
    assert found.count(Outcome.REGRESSION) >= 92
    assert outcomes(1.0, trials=100, slow_share=0.3).count(Outcome.REGRESSION) <= 1


def test_verdict_agrees_with_the_textbook_t_test_if_the_tolerance_is_small():
    """One launch a session: a t test of one session against the median of eight."""
    *baseline, current = simulated_sessions(9, seed=3, launches=1, session=0.01)
    verdict = judge(current, baseline, tolerance=1e-9, alpha=0.001)
    sessions = np.log([session[0][0] for session in baseline])
    error = sessions.std(ddof=1) * math.sqrt(1 + math.pi / 2 / 8)
    margin = stats.t.isf(0.005, 7) * error
    difference = math.log(current[0][0]) - np.median(sessions)
    # Correlated sessions widen the error; these are seeded to show none.
    assert verdict.ratio == pytest.approx(math.exp(difference))
    assert verdict.interval == pytest.approx(
        (math.exp(difference - margin), math.exp(difference + margin)), rel=1e-6
    )


def test_a_launch_of_many_values_counts_as_its_level():
    *baseline, current = simulated_sessions(9, seed=1, values=51, value=0.02)
    levels = [[[launch_level(launch)] for launch in session] for session in baseline]
    assert judge(current, levels, **RULE) == judge(current, baseline, **RULE)


def test_judge_figures_gives_the_verdict_of_launches_with_one_value_each():
    *baseline, current = simulated_sessions(9, seed=3)
    *controls, control = simulated_sessions(9, seed=4)

    def figures(session):
        return [value for (value,) in session]

    assert judge_by_figures(
        figures(current),
        [figures(session) for session in baseline],
        control=figures(control),
        baseline_control=[figures(session) for session in controls],
        **RULE,
    ) == judge(current, baseline, control=control, baseline_control=controls, **RULE)


def test_spikes_within_launches_do_not_change_the_verdict():
    *baseline, current = simulated_sessions(9, seed=1, values=51, value=0.01)
    spiky = [[*launch[:-2], 100.0, 100.0] for launch in current]
    plain, spiked = (judge(each, baseline, **RULE) for each in (current, spiky))
    assert spiked.outcome is plain.outcome is Outcome.PASS
    assert spiked.ratio == pytest.approx(plain.ratio, abs=0.002)


def test_minimum_detectable_is_found_nine_times_in_ten():
    found = 0
    for seed in range(200):
        *baseline, current = simulated_sessions(13, seed=seed)
        plain = judge(current, baseline, **RULE)
        slower = scaled(current, (1 + plain.minimum_detectable) / plain.ratio)
        # At its own ratio removed, a shift by the minimum detectable must be significant ...
        assert judge(slower, baseline, **RULE).outcome is Outcome.REGRESSION
        # ... and on top of the session's own luck nine times in ten.
        slower = scaled(current, 1 + plain.minimum_detectable)
        found += judge(slower, baseline, **RULE).outcome is Outcome.REGRESSION
    assert 170 <= found <= 195


def test_slow_drift_is_found_against_a_frozen_reference_and_named_within_a_growing_one():
    drift = [1.002**session for session in range(40)]
    sessions = simulated_sessions(40, seed=5)
    *baseline, current = [scaled(session, by) for session, by in zip(sessions, drift, strict=True)]
    assert judge(current, baseline, reference=5, **RULE).outcome is Outcome.REGRESSION
    growing = judge(current, baseline, **RULE)
    assert growing.off_level


def test_prior_finds_a_slow_down_that_three_sessions_alone_do_not():
    prior = SessionPrior(sd=0.005, degrees_of_freedom=20)
    assert outcomes(1.05, sessions=3).count(Outcome.REGRESSION) <= 20
    assert outcomes(1.05, trials=300, sessions=3, prior=prior).count(Outcome.REGRESSION) >= 280
    assert Outcome.REGRESSION not in outcomes(1.0, sessions=3, prior=prior)


def test_prior_that_the_sessions_contradict_is_not_used():
    prior = SessionPrior(sd=0.002, degrees_of_freedom=math.inf)
    *baseline, current = simulated_sessions(9, seed=2, session=0.02)
    assert judge(current, baseline, prior=prior, **RULE) == judge(current, baseline, **RULE)


def test_control_removes_the_movement_of_the_machine():
    moves = [1.0, 0.95, 1.06, 0.98, 1.03, 1.01, 0.94, 1.05, 1.06]
    sessions = simulated_sessions(9, seed=8)
    *baseline, current = [scaled(session, by) for session, by in zip(sessions, moves, strict=True)]
    *baseline_control, control = [[[by], [by * 1.001]] for by in moves]
    blind = judge(current, baseline, **RULE)
    seeing = judge(current, baseline, control=control, baseline_control=baseline_control, **RULE)
    assert blind.outcome is Outcome.UNDECIDED
    assert seeing.outcome is Outcome.PASS


def test_noisy_control_is_not_used():
    *baseline, current = simulated_sessions(9, seed=8)
    *baseline_control, control = simulated_sessions(9, seed=9, session=0.05, launch=0.05)
    plain = judge(current, baseline, **RULE)
    verdict = judge(current, baseline, control=control, baseline_control=baseline_control, **RULE)
    assert verdict.outcome is plain.outcome
    assert verdict.ratio == pytest.approx(plain.ratio, abs=0.003)


def test_control_that_moved_further_than_ever_makes_the_verdict_invalid():
    sessions = simulated_sessions(9, seed=8)
    *baseline, current = sessions
    *baseline_control, control = simulated_sessions(9, seed=9, session=0.001, launch=0.001)
    verdict = judge(
        scaled(current, 1.1),
        baseline,
        control=scaled(control, 1.1),
        baseline_control=baseline_control,
        **RULE,
    )
    assert verdict.outcome is Outcome.INVALID


def test_growing_share_of_slow_launches_is_suspect():
    *baseline, current = simulated_sessions(9, seed=4)
    current = [*current[:1], *scaled(current[1:], 1.5)]
    verdict = judge(current, baseline, **RULE)
    assert verdict.outcome is Outcome.SUSPECT
    assert verdict.ratio == pytest.approx(1.5**0.8, rel=0.02)
    assert verdict.upper is None  # that of the fast launch is not the session's


def test_two_slow_launches_prevent_a_pass():
    *baseline, current = simulated_sessions(9, seed=4)
    current = [*current[:3], *scaled(current[3:], 1.5)]
    verdict = judge(current, baseline, **RULE)
    assert verdict.outcome in (Outcome.SUSPECT, Outcome.UNDECIDED)


def test_a_ratio_of_the_fast_launches_has_that_of_all_launches_beside_it():
    *baseline, current = simulated_sessions(9, seed=4)
    current = [*scaled(current[:1], 1.1), *scaled(current[1:], 1.6)]
    verdict = judge(current, baseline, **RULE)
    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.ratio == pytest.approx(1.1, rel=0.02)
    overall = re.search(r"with them it is \+([\d.]+) %", verdict.reason)
    assert float(overall[1]) == pytest.approx(100 * (1.1**0.2 * 1.6**0.8 - 1), abs=3)


def test_one_launch_below_all_others_never_passes_a_slow_down():
    *baseline, current = simulated_sessions(9, seed=4)
    current = [*scaled(current[:1], 0.7), *scaled(current[1:], 1.1)]
    assert judge(current, baseline, **RULE).outcome not in (
        Outcome.PASS,
        Outcome.IMPROVEMENT,
    )


def test_every_launch_in_the_known_slow_mode_is_no_regression():
    """With three launches, 30 % of them slow, all launches of one session in 37 are slow."""
    *baseline, current = simulated_sessions(9, seed=6, launches=3, slow_share=0.3)
    current = scaled(simulated_sessions(1, seed=60, launches=3)[0], 1.4)
    verdict = judge(current, baseline, **RULE)
    assert verdict.outcome in (Outcome.SUSPECT, Outcome.UNDECIDED)
    between = scaled(simulated_sessions(1, seed=60, launches=3)[0], 1.2)
    assert judge(between, baseline, **RULE).outcome is Outcome.REGRESSION


@pytest.mark.parametrize(
    ("sessions", "machine", "by_launches", "by_sessions"),
    [
        (8, {"seed": 6, "launch": 0.03, "session": 0.0}, True, False),
        (3, {"seed": 12, "session": 0.008}, False, True),
        (8, {"seed": 13, "session": 0.06}, False, False),
        (1, {"seed": 5, "session": 0.03}, False, False),
    ],
)
def test_undecided_verdict_has_its_bound_and_what_likely_decides_it(
    sessions, machine, by_launches, by_sessions
):
    *baseline, current = simulated_sessions(sessions + 1, **machine)
    verdict = judge(current, baseline, **RULE)
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.upper == pytest.approx(verdict.interval[1])
    assert (verdict.likely_launches is not None) is by_launches
    assert (verdict.more_sessions is not None) is by_sessions


def test_fast_launches_rule_nothing_out_where_most_are_slow_as_never_before():
    """The session is faster even with its slow launches, so that they are not suspect."""
    *baseline, current = simulated_sessions(9, seed=4)
    current = [*scaled(current[:2], 0.6), *scaled(current[2:], 0.9)]

    verdict = judge(current, baseline, **RULE)

    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.upper is None
