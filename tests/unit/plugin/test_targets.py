"""A target has a test of its own: it is red on the first day, and no baseline excuses it."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree

import pytest

from ddp_perf.core.launch import RankConditions
from ddp_perf.core.verdict import Outcome
from tests.builders import make_acknowledgement, make_launch
from tests.projects import TINY

TWO = "mlp-ddp-fp32-ws2-b16"  # 12 ms a step: an efficiency of 0.83
TEST = f"tests/test_perf.py::test_target[{TWO}-efficiency]"


@pytest.fixture
def suite(project):
    """``suite(bound)`` writes a suite whose efficiency has that target."""

    def write(bound, **selectors):
        targets = {"efficiency": f"'{bound}'", **selectors}
        fields = ", ".join(f"{name}: {value}" for name, value in targets.items())
        text = f"{TINY.replace('launches: 2', 'launches: 3')}targets: {{{fields}}}\n"
        project.suite("tiny", text)

    return write


def test_only_a_case_with_a_target_on_this_accelerator_has_a_test(project, suite):
    suite(">= 0.75")
    project.run("--co", "-q").stdout.fnmatch_lines([TEST])

    suite(">= 0.75", accelerators="['v100*']")
    assert "test_target" not in str(project.run("--co", "-q").stdout)


def test_a_named_test_without_a_target_is_skipped_with_the_reason(project):
    result = project.run("tests/test_perf.py::test_target", "-rs")

    result.assert_outcomes(skipped=1)
    assert "no suite has a target for this accelerator" in str(result.stdout)


@pytest.mark.parametrize(
    ("bound", "outcome", "said"),
    [
        (">= 0.75", "passed", "1 target: 1 met (efficiency target)"),
        (
            ">= 0.9",
            "failed",
            "3 launches) misses the target of at least 0.9 in bench_configs/tiny.yaml",
        ),
    ],
)
def test_its_test_passes_or_fails_without_any_baseline(project, suite, bound, outcome, said):
    suite(bound)

    result = project.run("-k", "test_target", "--ddp-report=out", "-v")

    result.assert_outcomes(**{outcome: 1}, deselected=result.parseoutcomes()["deselected"])
    assert said in " ".join(str(result.stdout).split())


def test_an_undecided_one_is_skipped_with_the_launches_that_would_decide(project, suite):
    suite(">= 0.833")
    project.answer = lambda request: make_launch(
        request.case,
        request.round,
        step_s=0.0100 if request.case.world_size == 1 else (0.0118, 0.0120, 0.0122)[request.round],
    )

    result = project.run("-k", "test_target", "-rs", "--ddp-budget=0")

    assert result.parseoutcomes()["skipped"] == 1
    assert "more launches would decide it" in " ".join(str(result.stdout).split())


def test_a_missed_target_does_not_stop_the_session_from_being_stored(project, suite):
    suite(">= 0.9")

    first = project.run("--save-baseline")

    assert first.parseoutcomes()["failed"] == 1
    assert project.stored().keys() == {case.id for case in project.cases()}
    accepted = project.run("--save-baseline=accept", "--ddp-reason=it is as it is, see #12")
    assert accepted.parseoutcomes()["failed"] == 1  # the target still is


def test_a_target_that_changes_needs_no_new_baseline(project, suite):
    suite(">= 0.9")
    project.run("--save-baseline")
    stored = project.stored()

    suite(">= 0.75")
    results = project.results()["tiny"]

    outcomes = {found.metric: found.verdict.outcome for found in results.findings}
    assert outcomes["target:efficiency"] is Outcome.MEETS_TARGET
    assert Outcome.NO_BASELINE not in outcomes.values()
    assert project.stored() == stored


def test_an_acknowledged_one_is_an_xfail_until_its_date(project, suite):
    suite(">= 0.9")
    case = project.cases()[1]
    given = make_acknowledgement(case, metric="target:efficiency", until="2099-12-31")
    project.store(acknowledged=(given,))

    result = project.run("-k", "test_target", "-rx")

    assert result.parseoutcomes()["xfailed"] == 1


def test_disturbed_launches_skip_it(project, suite):
    suite(">= 0.9")
    busy = RankConditions(foreign=0.5)
    project.answer = lambda request: make_launch(request.case, request.round, conditions=busy)

    result = project.run("-k", "test_target", "-rs")

    assert result.parseoutcomes()["skipped"] == 1
    assert "INVALID: efficiency target" in str(result.stdout)


def test_ranks_that_are_slowed_on_purpose_miss_it(project, suite):
    suite(">= 0.75")
    project.answer = project.steps_of(0.010, 0.024)

    results = project.results("--ddp-inject=compute:100%")["tiny"]

    assert results.finding(TWO, "target:efficiency").verdict.outcome is Outcome.MISSES_TARGET


def test_a_missed_target_that_no_test_asserts_is_shown_and_not_counted(project, suite):
    suite(">= 0.9")
    project.store()

    result = project.run("-k", "structure")

    assert result.ret == pytest.ExitCode.OK
    text = " ".join(str(result.stdout).split())
    assert f"MISSES TARGET (no test): efficiency target of {TWO}: efficiency 0.8333" in text


def test_every_report_shows_it(project, suite, monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    suite(">= 0.9")
    project.store()

    result = project.run("--ddp-report=out", "--junit-xml=junit.xml")

    out, reason = project.path / "out", "misses the target of at least 0.9 in bench_configs/tiny"
    assert f"::error title={TWO}%3A MISSES TARGET::efficiency target: eff" in str(result.stdout)
    assert "next: ddp-perf doctor" in str(result.stdout)
    page = " ".join((out / "index.html").read_text("utf-8").split())
    assert reason in page
    assert "targets met" in page
    assert reason in (out / "summary.md").read_text("utf-8").replace("\\_", "_")
    lines = (out / "comprehensive_summary.csv").read_text("utf-8").splitlines()
    (row,) = (row for row in csv.DictReader(lines) if row["case"] == TWO)
    assert (row["verdict"], row["targets"], row["targets_met"]) == ("MISSES TARGET", "1", "0")
    (test,) = (
        test
        for test in ElementTree.parse(project.path / "junit.xml").iter("testcase")
        if test.get("name") == f"test_target[{TWO}-efficiency]"
    )
    properties = {one.get("name"): one.get("value") for one in test.iter("property")}
    assert (properties["verdict"], properties["target"]) == ("MISSES TARGET", "0.9")
    assert reason in test.find("failure").get("message")
