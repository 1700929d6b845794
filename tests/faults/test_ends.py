"""A signal ends a session at a random moment: nothing is lost, and the next one ends well."""

from __future__ import annotations

import pytest

from tests.faults.ends import FAULTS, Project, try_end


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("ends") / "project")


def test_the_first_sessions_stored_something(project):
    assert project.stored


@pytest.mark.parametrize("fault", FAULTS[:2], ids=lambda fault: fault.name)
def test_an_end_at_a_random_moment_loses_nothing(project, fault):
    tried = try_end(project, fault, seed=1)

    assert tried.survived, tried
    assert (tried.lost, tried.leaked) == (0, ())
