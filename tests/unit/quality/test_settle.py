"""Edits that a session is to find: that each applies, and how the sessions score."""

from __future__ import annotations

import ast
import shutil
import subprocess

import msgspec
import pytest

from tests.quality.settle import plan
from tests.quality.settle_edits import BY_NAME, EDITS, SOURCES
from tests.quality.settle_project import SettleProject, a_day_earlier
from tests.quality.settle_score import (
    Run,
    is_false,
    is_pointed_out,
    is_right,
    named,
    report,
    with_results,
)

ONE, TWO = "training.build.build-none-fp32-ws1-b128", "training.build.build-ddp-fp32-ws2-b128"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def finding(case_id=ONE, metric="step_time", outcome="REGRESSION", ratio=1.5):
    verdict = {"outcome": outcome, "reason": "as it is", "ratio": ratio}
    return {"case_id": case_id, "metric": metric, "verdict": verdict}


def results(*findings, settled=None):
    suite = {"suite": "training", "findings": findings, "settled": settled or {}}
    return msgspec.json.encode({"schema_version": 1, "complete": True, "suites": [suite]})


def run(*findings, settled=None, **changes):
    fields = {"name": "sleep", "kind": "edit", "stored": 1, "exit_code": 1, "seconds": 60.0}
    before = Run(**{**fields, "lines": (23,), **changes})
    return with_results(before, results(*findings, settled=settled))


def sources(directory):
    return {path.name: path.read_text() for path in (directory / "training").glob("*.py")}


@pytest.fixture
def project(tmp_path):
    """A copy of the sources, without a history."""
    shutil.copytree(
        SOURCES / "training",
        tmp_path / "project" / "training",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return SettleProject(tmp_path)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edit_changes_its_file_alone_and_gives_python_with_its_marks(edit, project):
    before = sources(project.path)

    edit.make(project.path)

    after = sources(project.path)
    changed = [name for name in before if after[name] != before[name]]
    assert [f"training/{name}" for name in changed] == [edit.file]
    ast.parse(after[changed[0]])
    text = after[changed[0]]
    lines = set(before[changed[0]].splitlines())
    marked = [text.splitlines()[number - 1] for number in project.marked_lines(edit)]
    assert marked
    assert not lines & set(marked)  # each is a line of the edit
    assert all(any(mark in line for line in marked) for mark in edit.marks)


def test_an_edit_of_another_version_of_the_file_is_refused(project):
    BY_NAME["sleep"].make(project.path)

    with pytest.raises(ValueError, match=r"sleep: .* is 0 times in training/model.py, not once"):
        BY_NAME["sleep"].applied("")


def test_half_of_each_group_is_held_out_and_half_of_each_half_about_is_committed():
    table, own = ([edit for edit in EDITS if edit.group == group] for group in ("table", "own"))
    assert (len(table), len(own), len(BY_NAME)) == (12, 10, 22)
    assert [sum(edit.held_out for edit in group) for group in (table, own)] == [6, 5]
    assert sum(edit.committed for edit in EDITS) == 11
    assert sum(edit.committed for edit in EDITS if edit.held_out) == 5


def test_sessions_of_all_edits_are_planned_once_and_the_others_are_divided():
    planned = plan(["sleep", "stall"], [1, 5], unchanged=3, neutral=1)

    assert sorted(planned) == [
        ("neutral-1", "neutral", 1),
        ("sleep", "edit", 1),
        ("sleep", "edit", 5),
        ("stall", "edit", 1),
        ("stall", "edit", 5),
        ("unchanged-1", "unchanged", 1),
        ("unchanged-2", "unchanged", 5),
        ("unchanged-3", "unchanged", 1),
    ]
    assert planned == plan(["sleep", "stall"], [1, 5], unchanged=3, neutral=1)
    assert planned != sorted(planned)


@pytest.mark.parametrize(
    ("settled", "expected"),
    [
        ({"lines": [{"file": "training/model.py", "line": 23, "text": "other"}]}, ("line",)),
        (
            {"lines": [{"file": "training/model.py", "line": 9, "text": "time.sleep(0.007)"}]},
            ("line",),
        ),
        ({"lines": [{"file": "training/loss.py", "line": 23, "text": "other"}]}, ()),
        ({"causes": ["edited: training/model.py:23 Net.forward"]}, ("cause",)),
        ({"causes": ["edited: training/model.py:230 Net.forward"]}, ()),
        ({"causes": ["more time in `time.sleep(0.007)`"]}, ("cause",)),
        ({"causes": ["it computes longer in the forward"]}, ()),
        ({"causes": ["changed line: training/model.py:23: time.sleep(0.007)"]}, ("listed",)),
        ({"culprit": {"commits": [{"hash": COMMIT[:9]}]}}, ("commit",)),
        ({"culprit": {"commits": [{"hash": "fedcba987"}]}}, ()),
        ({"culprit": None}, ()),
        ({}, ()),
    ],
)
def test_an_edit_is_named_by_its_line_its_text_or_its_commit(settled, expected):
    found = run(finding(), settled={ONE: settled}, commit=COMMIT)

    assert named(found, BY_NAME["sleep"]) == expected
    assert is_right(found) == bool(expected)


def test_a_line_among_all_changed_lines_is_named_and_not_pointed_out():
    listed = "changed line: training/model.py:23: time.sleep(0.007)"

    assert is_right(run(finding(), settled={ONE: {"causes": [listed]}}))
    assert not is_pointed_out(run(finding(), settled={ONE: {"causes": [listed]}}))
    assert is_pointed_out(run(finding(), settled={ONE: {"causes": [listed, "more: " + listed]}}))


def test_a_commit_is_not_named_where_the_edit_has_none():
    found = run(finding(), settled={ONE: {"culprit": {"commits": [{"hash": COMMIT}]}}})

    assert not is_right(found)


def test_what_is_named_for_a_case_that_is_not_red_does_not_count():
    causes = {"causes": ["training/model.py:23"]}
    found = run(finding(TWO), finding(ONE, outcome="PASS"), settled={ONE: causes})

    assert not is_right(found)


def test_an_edit_of_two_ranks_is_found_on_two_ranks_and_false_on_one():
    causes = {ONE: {"causes": ["features.sort(dim=1)"]}, TWO: {"causes": ["features.sort(dim=1)"]}}
    one = run(finding(ONE), name="rank-1-computes", settled=causes)
    two = run(finding(TWO), name="rank-1-computes", settled=causes)

    assert (is_right(one), is_false(one)) == (False, True)
    assert (is_right(two), is_false(two)) == (True, False)


@pytest.mark.parametrize("kind", ["unchanged", "neutral"])
def test_any_red_time_of_unchanged_code_is_false_and_a_red_structure_is_not(kind):
    assert is_false(run(finding(TWO, "tail"), name=f"{kind}-1", kind=kind))
    assert not is_false(run(finding(TWO, outcome="UNDECIDED"), name=f"{kind}-1", kind=kind))
    assert not is_false(run(finding(TWO, "structure"), name=f"{kind}-1", kind=kind))


def test_results_before_the_second_stage_have_nothing_settled():
    suite = {"suite": "training", "findings": [finding()]}
    found = with_results(run(), msgspec.json.encode({"suites": [suite]}))

    assert (found.settled, found.settling_s, found.pairs) == ({}, 0.0, 0)
    assert [one.case_id for one in found.red()] == [ONE]


def test_the_report_has_each_session_and_the_rates_with_their_intervals():
    paired = {"pairs": 6, "seconds": 40.0, "causes": ["training/model.py:23"]}
    runs = [
        run(finding(), finding(TWO, "tail", "PASS", 1.02), settled={ONE: paired}),
        run(finding(TWO, ratio=1.12), name="short-sleep", seconds=90.0),
        run(finding(outcome="UNDECIDED"), name="stall"),
        run(finding(outcome="PASS", ratio=None), name="unchanged-2", kind="unchanged", exit_code=0),
        msgspec.structs.replace(run(), name="garbage", error="Traceback"),
    ]

    lines = list(report(runs))

    assert lines[2:7] == [
        "| sleep | 1 | 1: +50 %; 2: (+2 % tail) | 1: step RED; 2: PASS | cause | 60 s | 40 s | 6 |",
        "| short-sleep (held out) | 1 | 2: (+12 %) | 2: step RED | no | 90 s | 0 s | 0 |",
        "| stall (held out) | 1 | 1: (+50 %) | 1: step ? | no | 60 s | 0 s | 0 |",
        "| garbage | 1 | | no results, exit code 1 | | | | |",
        "| unchanged-2 | 1 | 1: – | 1: PASS |  | 60 s | 0 s | 0 |",
    ]
    assert lines[10:] == [
        "1 stored:",
        "  tuned: red 1 of 1, 100 (3–100) %; with line, cause or commit 1 of 1, 100 (3–100) %;"
        " pointed out 1 of 1, 100 (3–100) %",
        "  held out: red 1 of 3, 33 (1–91) %; with line, cause or commit 0 of 3, 0 (0–71) %;"
        " pointed out 0 of 3, 0 (0–71) %",
        "  unchanged: red 0 of 1, 0 (0–98) %",
        "  red on ranks that an edit leaves alone: 0 of 4, 0 (0–60) %",
        "  time: median 60 s, longest 90 s",
        "  of it settling, where pairs were launched: median 40 s, longest 40 s",
        "without results: garbage (1)",
    ]


def test_the_sessions_of_a_baseline_become_a_day_older():
    session = {"date": "2026-03-01T00:30:00+00:00", "commit": "abc", "launches": {}}
    entry = {"date": "2026-03-01T00:30:00+00:00", "reason": "meant"}
    baseline = {"accelerator": "cpu", "cases": {ONE: {"sessions": [session], "log": [entry]}}}

    (case,) = a_day_earlier(baseline)["cases"].values()

    assert case["sessions"] == [{**session, "date": "2026-02-28T00:30:00+00:00"}]
    assert case["log"] == [{**entry, "date": "2026-02-28T00:30:00+00:00"}]


def test_an_edit_has_its_commit_among_others_or_is_in_the_tree(project):
    def git(*words):
        done = subprocess.run(
            ["git", "-C", project.path, *words], check=True, capture_output=True, text=True
        )
        return done.stdout.splitlines()

    git("init", "-q", "-b", "main")
    (project.path / "README.md").write_text("# A training\n")
    project._commit("A training")

    commit = project.make(BY_NAME["short-sleep"])

    assert [line.partition(" ")[2] for line in git("log", "--oneline")] == [
        "README: Who to ask.",
        "Change training/model.py",
        "The docstring of the builder",
        "The longest name of a run",
        "README: How to read the log.",
        "A training",
    ]
    assert git("rev-parse", "HEAD~1") == [commit]
    assert git("diff", "--name-only", "HEAD~2", "HEAD~1") == ["training/model.py"]
    assert git("status", "--short") == []


def test_an_edit_that_is_not_committed_is_in_the_tree(project):
    subprocess.run(["git", "-C", project.path, "init", "-q"], check=True)
    (project.path / "README.md").write_text("# A training\n")
    project._commit("A training")

    assert project.make(BY_NAME["sleep"]) is None

    status = subprocess.run(
        ["git", "-C", project.path, "status", "--short"], check=True, capture_output=True, text=True
    )
    assert status.stdout == " M training/model.py\n"
