"""The prior of a case from the stored sessions of the machine's other cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.rule.comparison import launch_levels
from ddp_perf.stats.rule.judge import CaseSessions, MachineSpread, shared_variance
from tests.unit.stats.rule.machine import simulated_sessions


def days(count):
    return [f"2026-01-{day:02}" for day in range(1, count + 1)]


def case(sessions, *, tolerance=0.02, **fields):
    return CaseSessions(sessions=sessions, days=days(len(sessions)), tolerance=tolerance, **fields)


def cases(count, sessions, *, first_seed=0, **machine):
    return [
        case([launch_levels(s) for s in simulated_sessions(sessions, seed=seed, **machine)])
        for seed in range(first_seed, first_seed + count)
    ]


def moving_together(count, sessions, *, correlation, seed, sd=0.01):
    """Return cases whose sessions have this correlation from case to case."""
    random = np.random.default_rng(seed)
    shared = random.normal(0, sd, sessions)
    own = random.normal(0, sd, (count, sessions))
    levels = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    return [case([[float(np.exp(level))] for level in row]) for row in levels]


def prior_of(some, index=None):
    return MachineSpread(some).prior(index)


@pytest.mark.parametrize("launch", [0.001, 0.01])
def test_prior_is_the_sessions_sd_without_the_launches(launch):
    prior = prior_of(cases(200, 6, session=0.01, launch=launch))

    assert prior.sd == pytest.approx(0.01, rel=0.1)
    assert prior.degrees_of_freedom > 20  # the cases are truly alike


def test_cases_that_differ_have_a_weaker_prior():
    unlike = [*cases(30, 6, session=0.003), *cases(30, 6, first_seed=30, session=0.03)]

    assert prior_of(unlike).degrees_of_freedom < 5


def test_prior_is_none_if_no_other_case_has_two_sessions():
    alone = cases(1, 8)

    assert prior_of([]) is None
    assert prior_of(cases(5, 1)) is None
    assert prior_of(alone, 0) is None
    assert prior_of([*alone, *cases(3, 1)], 0) is None
    assert prior_of(alone, None) is not None


def test_prior_of_one_other_case_has_no_degrees_of_freedom():
    assert prior_of(cases(1, 8)).degrees_of_freedom == 0
    assert prior_of(cases(2, 8), 0).degrees_of_freedom == 0


def test_a_case_without_degrees_of_freedom_is_no_other_case():
    """Two cases, each with one session before an accepted change and one after it."""
    accepted = [case([[1.0, 1.01], [1.3, 1.31]], session_levels=(0, 1)) for _ in range(2)]
    known = cases(4, 8)

    assert prior_of(accepted, 0) is None
    assert prior_of(accepted) is None
    with_accepted, without = prior_of([*known, *accepted]), prior_of(known)
    assert with_accepted.sd == pytest.approx(without.sd)


@pytest.mark.parametrize("factor", [1.03, 1 / 1.03])
def test_exact_figures_that_moved_give_a_prior(factor):
    """A machine whose cases have no noise, as a benchmark of counted work."""
    exact = case([[100.0 * move] for move in (1, 1, factor, factor, factor)])

    assert prior_of([exact, exact, *cases(3, 6)], 0).sd > 0
    assert math.isfinite(prior_of([exact, exact], 0).sd)


def test_a_case_does_not_inform_its_own_prior():
    wild = case([[1.0], [3.0], [0.3], [2.0], [0.5], [1.0]])
    others = cases(20, 6, session=0.005, launch=0.001)
    spread = MachineSpread([*others, wild])

    assert spread.prior(20).sd == pytest.approx(0.005, rel=0.15)
    assert spread.prior(20).sd == pytest.approx(prior_of(others).sd)
    assert spread.prior(0).degrees_of_freedom < 5 < spread.prior(20).degrees_of_freedom


def test_prior_excludes_what_the_control_explains():
    moves = np.exp(np.random.default_rng(0).normal(0, 0.05, 6)).tolist()
    control = [[move] * 5 for move in moves]
    follows = [
        case(
            [
                [figure * by for figure in session]
                for session, by in zip(one.sessions, moves, strict=True)
            ],
            control=control,
        )
        for one in cases(40, 6, session=0.005)
    ]

    assert prior_of(follows).sd == pytest.approx(0.005, rel=0.25)


def test_prior_excludes_accepted_changes_of_the_level():
    stepped = [
        case([*one.sessions[:4], *([1.3 * v for v in s] for s in one.sessions[4:])])
        for one in cases(40, 8, session=0.005, launch=0.001)
    ]
    accepted = [
        CaseSessions(
            sessions=one.sessions,
            days=one.days,
            tolerance=one.tolerance,
            session_levels=[0] * 4 + [1] * 4,
        )
        for one in stepped
    ]

    # A move as clear as this within the reference is found without a word.
    assert prior_of(accepted).sd == pytest.approx(0.005, rel=0.15)
    assert prior_of(stepped).sd == pytest.approx(0.005, rel=0.15)
    later = [
        CaseSessions(sessions=one.sessions, days=one.days, tolerance=0.5) for one in stepped
    ]  # the move is below the tolerance
    assert prior_of(later).sd > 0.1


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 1.0])
def test_shared_variance_is_the_squared_correlation_of_the_cases(correlation):
    random = np.random.default_rng(3)
    found = []
    for _ in range(400):
        levels = np.sqrt(correlation) * random.normal(size=(1, 6)) + np.sqrt(
            1 - correlation
        ) * random.normal(size=(8, 6))
        rest = levels - levels.mean(axis=1, keepdims=True)
        found.append(
            shared_variance([dict(zip(days(6), row, strict=True)) for row in rest.tolist()])
        )

    # Both ends are cut off at 0 and 1, which bends the mean a little.
    assert np.mean(found) == pytest.approx(correlation**2, abs=0.1)


def test_nothing_is_known_of_how_alike_cases_move_with_one_case_or_too_few_days():
    row = {"2026-01-01": 0.1, "2026-01-02": -0.1}

    assert shared_variance([]) == shared_variance([row]) == 1.0
    assert shared_variance([row, row]) == 1.0
    assert shared_variance([dict.fromkeys(row, 0.0)] * 4) == 1.0


def test_cases_that_were_measured_on_other_days_share_nothing():
    first = {f"2026-01-{day:02}": 0.01 * (-1) ** day for day in range(1, 7)}
    later = {f"2026-02-{day:02}": 0.01 * (-1) ** day for day in range(1, 7)}

    assert shared_variance([first, later]) == 0.0
    assert shared_variance([first, first]) == pytest.approx(1.0)


@pytest.mark.parametrize(("correlation", "most"), [(1.0, 2), (0.0, 57)])
def test_degrees_of_freedom_are_those_that_the_sessions_carry(correlation, most):
    """Twenty cases with four sessions: at most Σ df ÷ (1 + (n − 1) ρ²), less the case's own 3."""
    found = [
        prior_of(moving_together(20, 4, correlation=correlation, seed=seed), 0).degrees_of_freedom
        for seed in range(30)
    ]

    assert max(found) <= most
    assert bool(np.mean(found) < 1) is (correlation == 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_false_alarms_by_the_prior_are_few_also_if_the_cases_move_together(correlation):
    """Four cases, three sessions: a t test of the next session by the prior and the case's own.

    Treated as independent, cases with a correlation of 0.9 gave 24 times the level.
    """
    level, alarms, trials = 0.01, 0, 2000
    for seed in range(trials):
        some = moving_together(4, 4, correlation=correlation, seed=seed)
        before = [case(one.sessions[:3]) for one in some]
        logs = np.log([session[0] for session in some[0].sessions])
        prior = prior_of(before, 0)
        own = logs[:3].var(ddof=1)
        df = prior.degrees_of_freedom + 2
        weight = 0.0 if df == 2 else prior.degrees_of_freedom / df
        variance = own if np.isinf(df) else (1 - weight) * own + weight * prior.sd**2
        variance = prior.sd**2 if np.isinf(df) else variance
        error = np.sqrt(variance * (1 + 1 / 3))
        alarms += (logs[3] - logs[:3].mean()) / error > stats.t.isf(level, df)

    assert stats.binomtest(alarms, trials, 2 * level, alternative="greater").pvalue > 0.001


def test_the_order_of_the_sessions_does_not_matter_to_the_launch_noise():
    """No session is the current one here: the last one's restless launches count as the first's."""
    restless = simulated_sessions(1, seed=9, launch=0.03)
    quiet = simulated_sessions(4, seed=8, launch=0.002)
    order = [*quiet, *restless]
    orders = [order, order[::-1]]
    first, last = (
        MachineSpread([case([launch_levels(s) for s in order])] * 2).prior(None) for order in orders
    )

    assert first.sd == pytest.approx(last.sd)
