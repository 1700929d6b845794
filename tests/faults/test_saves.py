"""A session that has measured and cannot be stored is kept, and the message says where."""

from __future__ import annotations

import pytest

from tests.faults.saves import OBSTACLES, OUTPUTS, try_full, try_obstacle, try_place
from tests.faults.sessions import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("saves") / "project")


@pytest.mark.parametrize("output", [OUTPUTS[0], OUTPUTS[2]], ids=lambda output: output.name)
def test_what_an_output_refuses_is_in_another_file(project, output):
    tried = try_place(project, output)

    assert tried.survived, tried
    assert tried.lost == 0


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output.name)
def test_an_output_that_cannot_be_written_is_refused_before_the_first_launch(project, output):
    (*_, (fault, put)) = OBSTACLES.items()
    tried = try_obstacle(project, output, fault, put)

    assert tried.survived, tried


def test_where_nothing_can_be_written_the_same_session_goes_on(project):
    tried = try_full(project)

    assert tried.survived, tried
    assert (tried.lost, tried.leaked) == (0, ())
