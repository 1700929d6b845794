"""``--ddp-inject`` in pytest: refused before a launch, judged as the same case, and marked."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from tests.projects import TINY, make_project

SUITE = TINY + "tolerances: {step_time: 0.95}\n"


@pytest.fixture
def project(pytester, monkeypatch):
    """A project with the suite's own tests and one small suite, which is saved despite noise."""
    return make_project(pytester, monkeypatch, addopts="-m cpu -p no:cacheprovider", tiny=SUITE)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--ddp-inject=comput:5%"],
            "--ddp-inject: unknown kind 'comput' *did you mean 'compute'?",
        ),
        (
            ["--ddp-inject=straggler:2:5ms"],
            "straggler:2:5ms: no selected case trains with a rank 2",
        ),
        (
            ["--ddp-inject=no-overlap", "-k", "ws1"],
            "--ddp-inject no-overlap: no selected case trains with DDP*",
        ),
    ],
    ids=["unknown", "no such rank", "no DDP"],
)
def test_an_invalid_injection_is_a_usage_error_and_nothing_is_launched(project, arguments, says):
    result = project.runpytest(*arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{says}"])
    assert "Traceback" not in result.stderr.str()
    assert "ddp: tiny" not in result.stdout.str()


@pytest.mark.slow
def test_an_injected_case_is_judged_against_the_stored_case_and_marked_everywhere(project):
    reports = ("-k", "structure", "--junitxml=junit.xml", "--ddp-json=results.json")
    plain = project.runpytest(*reports, "--save-baseline")
    assert "slowed on purpose" not in plain.stdout.str()
    assert _injections(project.path) == ([], [None, None])
    (baseline,) = (project.path / "baselines").glob("*.json")
    stored = baseline.read_bytes()

    result = project.runpytest(*reports, "--ddp-inject=extra-allreduce:4096", "--ddp-launches=1")

    result.stdout.fnmatch_lines(
        [
            "*1 all_reduce of 4,096 bytes (float32) more a step*",
            "*tiny on *, slowed on purpose: extra-allreduce:4096 *",
        ]
    )
    result.assert_outcomes(passed=1, failed=1, deselected=11)  # one rank has nobody to reduce with
    text = "extra-allreduce:4096"
    assert _injections(project.path) == ([text], [text, text])
    assert baseline.read_bytes() == stored


def _injections(directory):
    """Return the injections in the results file, and each item in the JUnit file."""
    (suite,) = json.loads((directory / "results.json").read_text())["suites"]
    properties = [
        {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        for case in ElementTree.parse(directory / "junit.xml").iter("testcase")
    ]
    return suite["injections"], [row.get("injected") for row in properties]
