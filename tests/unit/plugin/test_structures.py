"""The check of a pull request: structures are stored once, and checked on every machine."""

from __future__ import annotations

import shutil

import pytest

from ddp_perf.baselines.work import WorkStore
from tests.builders import make_launch, make_structure

CHECK = ("-k", "structure", "--ddp-launches=1", "--ddp-budget=0", "-rs")
OTHERS = 12  # tests of the two cases that are no check of a structure
ONE, TWO = "mlp-none-fp32-ws1-b16", "mlp-ddp-fp32-ws2-b16"


@pytest.fixture
def elsewhere(project):
    """Return the option by which a session has only what was committed: another machine."""

    def option():
        directory = project.path / "elsewhere"
        shutil.copytree(project.path / "baselines" / "structure", directory / "structure")
        return f"-o=ddp_baselines={directory}"

    return option


def changed(request):
    return make_launch(request.case, request.round, structure=make_structure(parameters=809))


def stored_in(project):
    stored = WorkStore(project.path / "baselines").structures("tiny")
    return {name: one.step.structure.parameters for name, one in stored.items()}


def test_one_launch_stores_structures_that_another_machine_is_checked_by(project, elsewhere):
    project.run(*CHECK).assert_outcomes(failed=2, deselected=OTHERS - 1)

    stored = project.run(*CHECK, "--save-baseline")
    file = project.path / "baselines" / "structure" / "tiny.json"
    option = elsewhere()
    same = project.run(*CHECK, option)
    project.answer = changed
    other = project.run(*CHECK, option)

    stored.assert_outcomes(skipped=2, deselected=OTHERS - 1)
    assert stored.ret == pytest.ExitCode.OK
    stored.stdout.fnmatch_lines([f"stored in {file}", "commit what is stored for every machine"])
    assert stored.stdout.lines[-1] == "next: git add baselines/structure/tiny.json"
    same.assert_outcomes(passed=2, deselected=OTHERS - 1)
    other.assert_outcomes(failed=2, deselected=OTHERS - 1)
    other.stdout.fnmatch_lines(["*more work than the baseline's: parameters 808 → 809;*"])


@pytest.mark.parametrize("arguments", [["--save-baseline"], ["--save-baseline=append"]])
def test_a_changed_structure_stays_red_until_it_is_accepted(project, elsewhere, arguments):
    project.run("--save-baseline")
    project.answer = changed

    red = project.run(*CHECK, *arguments)
    accepted = project.run(*CHECK, "--save-baseline=accept", "--ddp-reason=meant")

    red.assert_outcomes(failed=2, deselected=OTHERS - 1)
    accepted.assert_outcomes(skipped=2, deselected=OTHERS - 1)
    project.run(*CHECK, elsewhere()).assert_outcomes(passed=2, deselected=OTHERS - 1)
    project.run(*CHECK).assert_outcomes(passed=2, deselected=OTHERS - 1)
    assert stored_in(project) == {ONE: 809, TWO: 809}


def test_a_session_that_is_stored_stores_the_structure_of_each_case(project):
    (suite,) = project.results("--save-baseline").values()

    assert suite.saved_structures.keys() == suite.saved.keys() == {ONE, TWO}
    assert stored_in(project) == {ONE: 808, TWO: 808}


def test_a_slowed_session_stores_no_structure(project):
    refused = project.run(*CHECK, "--save-baseline", "--ddp-inject=small-buckets:1MB")

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    assert not (project.path / "baselines" / "structure").exists()
