"""A signal ends a session at a random moment: nothing is lost, and the next one goes on."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

from tests.faults.ends import FAULTS, OUTPUTS, StoredProject, stored, try_end
from tests.faults.policies import try_policy


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return StoredProject(tmp_path_factory.mktemp("ends") / "project")


def test_a_kill_at_a_random_moment_loses_nothing(project):
    assert project.stored
    tries = (try_end(project, FAULTS[0], seed) for seed in itertools.count(1))

    tried = next(one for one in tries if one is not None)

    assert tried.survived, tried
    assert (tried.lost, tried.leaked) == (0, ())


def interrupt(directory, request):
    if request.round == 1:
        os.kill(os.getpid(), signal.SIGINT)


def terminate(directory, request):
    if request.round == 1:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("trouble", [interrupt, terminate])
def test_the_same_command_goes_on_from_what_an_ended_session_measured(project, trouble):
    with project.copied() as directory:
        command = ("--save-baseline=append", *OUTPUTS)
        ended = project.start(directory, *command, trouble=trouble)
        assert ended.wait() == pytest.ExitCode.INTERRUPTED, ended.output
        assert (ended.launches, stored(directory)) == (2, project.stored)

        again = project.start(directory, *command)

        assert again.wait() == 0, again.output
        assert again.launches == project.launches - 2
        assert (stored(directory) - project.stored).total() == project.of_session


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_experiment_that_was_ended_comes_to_the_verdict_of_a_whole_one(number):
    tried = try_policy("a duel", number, seed=1)

    assert tried.survived, tried
    assert tried.lost == 0
