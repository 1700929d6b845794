"""Questions to git leave the repository as it is."""

from __future__ import annotations

import os

from ddp_perf.system.git import head_of, of_directory
from tests.repositories import Repository, every_byte


def test_a_look_at_the_changes_does_not_write_the_index(tmp_path):
    project = Repository(tmp_path / "project")
    os.utime(
        project.path / "model.py", (1e9, 1e9)
    )  # a plain `git status` writes the new time to the index
    before = every_byte(project.path)

    assert head_of(project.path) == (project.first, False)
    assert every_byte(project.path) == before

    project.git("status")
    assert every_byte(project.path) != before  # so the comparison can fail


def test_a_hook_of_another_repository_does_not_mislead(tmp_path, monkeypatch):
    project, other = Repository(tmp_path / "project"), Repository(tmp_path / "other")
    second = other.commit({"model.py": "STEPS = 2\n"}, "second")
    monkeypatch.setenv("GIT_DIR", str(project.path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(project.path / ".git" / "index"))

    assert head_of(other.path) == (second, False)


def test_what_leads_elsewhere_is_all_that_is_left_out():
    environ = {"GIT_DIR": "a", "GIT_INDEX_FILE": "b", "GIT_SSH": "c", "PATH": "d"}
    assert of_directory(environ) == {"GIT_SSH": "c", "PATH": "d"}
