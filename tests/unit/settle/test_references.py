"""The stored sessions whose code may run again, and what changed since."""

from __future__ import annotations

import subprocess

import pytest

from ddp_perf.core.baseline import Rebaseline
from ddp_perf.core.verdict import Outcome
from ddp_perf.settle.references import references, what_changed
from tests.unit.settle.settled_project import PACKAGES


def stored(project, *sessions, **changes):
    return next(iter(project.baseline(*sessions, **changes).cases.values()))


def days(found):
    return [int(one.date[8:10]) for one in found]


def test_the_sessions_with_their_code_are_references_the_oldest_first(project):
    sessions = [
        project.session(1),
        project.session(2, tree=None),
        project.session(3, commit=None),
        project.session(4),
    ]

    found = references(stored(project, *sessions), project.store)

    assert days(found) == [1, 4]
    assert found[0].state.tree == project.state().tree
    assert found[0].obstacle(project.path) is None
    assert found[0].label == f"the session of 2026-01-01 ({project.state().commit[:8]})"


@pytest.mark.parametrize("outcome", [Outcome.REGRESSION, Outcome.SUSPECT])
def test_a_session_that_was_off_the_level_is_none(project, outcome):
    sessions = [
        project.session(1, verdicts={"peak_memory": outcome}),
        project.session(2, verdicts={"step_time": Outcome.IMPROVEMENT}),
    ]

    assert days(references(stored(project, *sessions), project.store)) == [2]


def test_only_the_level_that_is_in_force_counts_with_the_session_that_began_it(project):
    sessions = [project.session(day) for day in (1, 2, 3)]
    log = [
        Rebaseline(date=sessions[day].date, commit=None, reason="meant", ratio=1.1)
        for day in (0, 1)
    ]

    assert days(references(stored(project, *sessions, log=tuple(log)), project.store)) == [2, 3]


def test_a_session_with_changes_has_them_in_its_patch(project):
    project.edit()
    changed = project.state()
    (found,) = references(stored(project, project.session(1)), project.store)

    assert found.state.patch == changed.patch != b""
    assert found.label.endswith(f"({changed.commit[:8]}, with changes)")
    assert found.obstacle(project.path) is None


def test_a_session_of_a_changed_commit_has_the_commit(project):
    commit = project.state().commit
    (found,) = references(
        stored(project, project.session(1, commit=f"{commit[:12]}+")), project.store
    )

    assert found.state.commit == commit[:12]
    assert found.obstacle(project.path) is None


def test_a_lost_patch_is_an_obstacle(project):
    project.edit()
    (found,) = references(stored(project, project.session(1, keep=False)), project.store)

    assert found.obstacle(project.path) == (
        f"it ran with changes of {found.state.commit[:8]} that were not kept in {found.patch}"
    )


def test_a_commit_that_the_clone_lacks_is_an_obstacle_with_the_remedy(project, tmp_path):
    first = project.session(1)
    project.repository.commit({"model.py": "def build(context): ...\n"}, "second")
    source = f"file://{project.path}"
    subprocess.run(
        ["git", "clone", "-q", "--depth=1", source, str(tmp_path / "shallow")], check=True
    )
    (found,) = references(stored(project, first), project.store)

    assert found.obstacle(project.path) is None
    obstacle = found.obstacle(tmp_path / "shallow")
    assert obstacle.startswith(f"its commit {found.state.commit[:8]} is not in this clone")
    assert "fetch-depth: 0" in obstacle


def changes(project, edit, *, before=None, after=None, case=0):
    """Return what changed for a case by an edit; ``before`` and ``after``: of the environments."""
    baseline = stored(project, project.session(1, **(before or {})))
    edit()
    (reference,) = references(baseline, project.store)
    here = project.environment(**(after or {}))
    return what_changed(project.cases()[case], reference, project.state(), here, project.project)


def test_nothing_changed(project):
    found = changes(project, lambda: None)

    assert found.is_nothing
    assert (found.code, found.lines, found.software, found.machine) == ((), (), (), ())
    assert found.texts == ()


def test_an_edit_of_a_file_that_the_case_reads_is_a_change_with_its_lines(project):
    found = changes(project, project.edit)

    assert found.code == ("model.py, which its workload imports",)
    assert found.lines == ("model.py:2: return slow(context)",)
    assert not found.is_nothing
    assert found.texts[0] == "model.py, which its workload imports"


def test_an_edit_that_no_step_reads_is_none(project):
    def edit():
        project.repository.commit({"README.md": "more\n", "docs/a.md": "x", "other.py": "x"}, "x")
        project.repository.write({"tests/test_model.py": "x", "unused.py": "x"})

    assert changes(project, edit).is_nothing


def test_an_edit_of_the_suite_file_is_a_change_with_its_lines(project):
    text = project.suites[0].read_text(encoding="utf-8")

    found = changes(
        project, lambda: project.edit(text + "env: {A: b}\n", "bench_configs/quick.yaml")
    )

    assert found.code == ("bench_configs/quick.yaml has its suite",)
    assert found.lines == ("bench_configs/quick.yaml:9: env: {A: b}",)


def test_a_file_that_may_change_every_case_is_a_change(project):
    found = changes(project, lambda: project.edit("numpy==2\n", "requirements.txt"))

    assert found.code == ("requirements.txt may change every case",)
    assert found.lines == ()


def test_a_name_that_is_not_utf_8_can_be_written_as_json(project):
    def edit():
        (project.path / "configs").mkdir()
        name = (bytes(project.path / "configs") + b"/a\xe4.bin").decode("utf-8", "surrogateescape")
        with open(name, "wb") as file:
            file.write(b"x")

    found = changes(project, edit)

    assert found.code
    assert all(text.encode("utf-8") for text in found.texts)


@pytest.mark.parametrize(
    ("before", "after", "software", "machine"),
    [
        ({}, {"packages": {**PACKAGES, "numpy": "2.2.0"}}, ("package numpy 2.1.0 → 2.2.0",), ()),
        ({}, {"packages": {"torch": "2.13.0"}}, ("package numpy 2.1.0 → unset",), ()),
        (
            {"torch": "2.12.0"},
            {"packages": {**PACKAGES, "torch": "2.13.0"}},
            ("torch 2.12.0 → 2.13.0",),
            (),
        ),
        ({"python": "3.10.1"}, {}, ("python 3.10.1 → 3.11.2",), ()),
        ({"variables": {"A": "1"}}, {"variables": {"A": "2"}}, ("A 1 → 2",), ()),
        ({}, {"variables": {"A": "2"}}, ("A unset → 2",), ()),
        ({"host": "a"}, {"host": "b"}, (), ("host a → b",)),
        ({"driver": "570"}, {"driver": "575"}, (), ("driver 570 → 575",)),
        ({"os": "Linux 6.1"}, {"os": "Linux 6.6"}, (), ("os Linux 6.1 → Linux 6.6",)),
    ],
)
def test_software_and_machine_are_told_apart(project, before, after, software, machine):
    found = changes(project, lambda: None, before=before, after=after)

    assert found.software == software
    assert found.machine == machine
    assert found.is_nothing is (software == ())


@pytest.mark.parametrize("side", ["before", "after"])
def test_without_packages_it_is_unknown_whether_the_software_changed(project, side):
    found = changes(project, lambda: None, **{side: {"packages": {}}})

    assert found.software is None
    assert not found.is_nothing


def test_code_that_is_not_known_is_no_unchanged_code(project):
    (reference,) = references(stored(project, project.session(1)), project.store)
    case, here = project.cases()[0], project.environment()

    unknown = what_changed(case, reference, None, here, project.project)

    assert unknown.code is None
    assert not unknown.is_nothing


def test_a_reference_whose_patch_is_lost_is_no_unchanged_code(project):
    project.edit()
    (reference,) = references(stored(project, project.session(1, keep=False)), project.store)
    case, here = project.cases()[0], project.environment()

    same = what_changed(case, reference, project.state(), here, project.project)
    project.edit("def build(context): ...\n")
    other = what_changed(case, reference, project.state(), here, project.project)

    assert same.is_nothing  # equal names of trees are equal files
    assert other.code is None
