"""The prior from the baselines of all cases of one machine."""

import numpy as np
import pytest

from ddp_perf.stats.rule.inputs import typical_values
from ddp_perf.stats.rule.machine_prior import CaseSessions, machine_prior
from tests.unit.stats.rule.machine import simulated_sessions


def cases(count, sessions, **machine):
    return [
        CaseSessions(
            sessions=[
                typical_values(session)
                for session in simulated_sessions(sessions, seed=seed, **machine)
            ],
            tolerance=0.02,
        )
        for seed in range(count)
    ]


@pytest.mark.parametrize("launch", [0.001, 0.01])
def test_prior_is_the_sessions_sd_without_the_launches(launch):
    prior = machine_prior(cases(200, 4, session=0.01, launch=launch))
    assert prior.sd == pytest.approx(0.01, rel=0.1)
    assert prior.degrees_of_freedom > 20  # the cases are truly alike


def test_cases_that_differ_have_a_weaker_prior():
    unlike = [*cases(30, 6, session=0.003), *cases(30, 6, session=0.03)]
    assert machine_prior(unlike).degrees_of_freedom < 5


def test_prior_is_none_if_no_case_has_two_sessions():
    assert machine_prior([]) is None
    assert machine_prior(cases(5, 1)) is None


def test_prior_of_one_case_has_no_degrees_of_freedom():
    assert machine_prior(cases(1, 8)).degrees_of_freedom == 0


def test_prior_excludes_what_the_control_explains():
    moves = np.exp(np.random.default_rng(0).normal(0, 0.05, 6)).tolist()
    control = [[move] * 5 for move in moves]
    follows = [
        CaseSessions(
            sessions=[
                [figure * by for figure in session]
                for session, by in zip(case.sessions, moves, strict=True)
            ],
            control=control,
            tolerance=0.02,
        )
        for case in cases(40, 6, session=0.005)
    ]
    assert machine_prior(follows).sd == pytest.approx(0.005, rel=0.25)
