"""A signal ends a session at a random moment: nothing is lost, and the next one goes on."""

from __future__ import annotations

import itertools
import signal

import pytest

from tests.faults.ends import FAULTS, StoredProject, try_end
from tests.faults.policies import try_policy


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return StoredProject(tmp_path_factory.mktemp("ends") / "project")


@pytest.mark.parametrize("fault", FAULTS[:2], ids=lambda fault: fault.name)
def test_an_end_at_a_random_moment_loses_nothing(project, fault):
    assert project.stored
    tries = (try_end(project, fault, seed) for seed in itertools.count(1))

    tried = next(one for one in tries if one is not None)

    assert tried.survived, tried
    assert (tried.lost, tried.leaked) == (0, ())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_experiment_that_was_ended_comes_to_the_verdict_of_a_whole_one(number):
    tried = try_policy("a duel", number, seed=1)

    assert tried.survived, tried
    assert tried.lost == 0
