"""The files that differ from a commit, in a real repository that stays as it is."""

from __future__ import annotations

import os
import subprocess

import pytest

from ddp_perf.errors import SideError
from ddp_perf.system.git import changed_since, merge_base, repository_root


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "test")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "test@example.com")
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    for name in ("kept.py", "edited.py", "removed.py", "moved.py"):
        (tmp_path / name).write_text(f"# {name}\n")
    commit(tmp_path)
    return tmp_path


def git(root, *words):
    done = subprocess.run(["git", *words], cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def commit(root):
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a change")
    return git(root, "rev-parse", "HEAD")


def state(root):
    """Return each file of .git with its content."""
    files = (path for path in (root / ".git").rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


def test_committed_staged_edited_and_new_files_differ(repository):
    base = git(repository, "rev-parse", "HEAD")
    (repository / "edited.py").write_text("1\n")
    commit(repository)
    (repository / "removed.py").unlink()
    (repository / "moved.py").rename(repository / "größe 2.py")
    git(repository, "add", "moved.py", "größe 2.py")
    (repository / "new.py").write_text("")
    (repository / "ignored.py").write_text("")

    differ = ("edited.py", "größe 2.py", "moved.py", "new.py", "removed.py")
    assert changed_since(repository, base) == tuple(sorted(differ))


def test_files_are_named_from_the_root_of_the_repository(repository):
    (repository / "inner").mkdir()
    (repository / "inner" / "new.py").write_text("")

    assert repository_root(repository / "inner") == repository
    assert changed_since(repository / "inner", "HEAD") == ("inner/new.py",)


def test_the_index_stays_as_it_is_also_if_a_file_has_another_time(repository):
    os.utime(repository / "kept.py", (1, 1))
    before = state(repository)

    assert changed_since(repository, "HEAD") == ()
    assert state(repository) == before


def test_the_base_is_the_commit_where_the_branches_went_apart(repository):
    base = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "-b", "branch")
    (repository / "branch.py").write_text("")
    commit(repository)
    git(repository, "checkout", "--quiet", "main")
    (repository / "main.py").write_text("")
    commit(repository)
    git(repository, "checkout", "--quiet", "branch")

    assert merge_base(repository, "main") == base
    assert changed_since(repository, base) == ("branch.py",)


def test_what_is_no_revision_and_no_repository_is_refused(repository, tmp_path_factory):
    with pytest.raises(
        SideError, match="origin/main and HEAD have no common commit here; check the name, or fetch"
    ):
        merge_base(repository, "origin/main")
    with pytest.raises(SideError, match=r"^git rev-parse: .*not a git repository"):
        changed_since(tmp_path_factory.mktemp("none"), "HEAD")


def test_an_edit_within_the_same_tick_of_the_clock_is_seen(repository):
    git(repository, "config", "core.trustctime", "false")
    edited, index = repository / "edited.py", repository / ".git" / "index"
    os.utime(edited, (1e9, 1e9))
    git(repository, "update-index", "--refresh")
    os.utime(index, (1e9, 1e9))
    edited.write_text("# EDITED.py\n", encoding="utf-8")  # as long as before
    os.utime(edited, (1e9, 1e9))

    assert changed_since(repository, "HEAD") == ("edited.py",)
