"""The line of commits between good and bad, in real repositories."""

from __future__ import annotations

import subprocess

import pytest

from ddp_perf.duel.bisect.commits import commit_line
from ddp_perf.errors import SideError

WHO = ["-c", "user.name=Ada Lovelace", "-c", "user.email=ada@example.org"]


@pytest.fixture
def git(tmp_path):
    def run(*arguments):
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *WHO, *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        )
        return done.stdout.strip()

    run("init", "-q", "-b", "main")
    run("config", "commit.gpgsign", "false")
    return run


@pytest.fixture
def commit(git):
    def make(subject):
        git("commit", "-q", "--allow-empty", "-m", subject)
        return git("rev-parse", "HEAD")

    return make


def test_the_line_begins_with_good_and_ends_with_bad(tmp_path, commit):
    hashes = [commit(f"Commit {number}: ä") for number in range(5)]

    line = commit_line(tmp_path, hashes[1], "main")

    assert [one.hash for one in line.commits] == hashes[1:]
    assert (line.length, line.merges, line.joins) == (3, 0, False)
    assert line.commits[1].author == "Ada Lovelace"
    assert line.commits[1].subject == "Commit 2: ä"
    assert line.repository == str(tmp_path.resolve())


def test_a_merge_stands_for_its_branch(tmp_path, git, commit):
    good = commit("good")
    git("checkout", "-q", "-b", "branch")
    commit("on the branch")
    git("checkout", "-q", "main")
    commit("on main")
    git("merge", "-q", "--no-ff", "-m", "merge", "branch")
    commit("bad")

    line = commit_line(tmp_path, good, "HEAD")

    assert [one.subject for one in line.commits] == ["good", "on main", "merge", "bad"]
    assert (line.merges, line.joins) == (1, False)


def test_good_on_a_branch_begins_with_the_merge_that_brought_it_in(tmp_path, git, commit):
    commit("root")
    git("checkout", "-q", "-b", "branch")
    good = commit("good, on the branch")
    git("checkout", "-q", "main")
    commit("on main, without good")
    git("merge", "-q", "--no-ff", "-m", "merge", "branch")
    commit("bad")

    line = commit_line(tmp_path, good, "HEAD")

    assert [one.subject for one in line.commits] == ["good, on the branch", "merge", "bad"]
    assert line.joins


def test_swapped_commits_are_refused_with_the_remedy(tmp_path, commit):
    older, newer = commit("older"), commit("newer")

    with pytest.raises(SideError, match=r"not an ancestor of --bad .*: swap the two"):
        commit_line(tmp_path, newer, older)


def test_commits_of_two_branches_are_refused_with_their_base(tmp_path, git, commit):
    base = commit("base")
    git("branch", "other")
    commit("on main")
    git("checkout", "-q", "other")
    commit("on other")

    with pytest.raises(SideError, match=f"give --good {base[:12]}"):
        commit_line(tmp_path, "main", "other")


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("nothing", "HEAD", "--good: nothing: no revision"),
        ("HEAD", "nothing", "--bad: nothing: no revision"),
        ("--all", "HEAD", "--good: --all: "),
        ("HEAD", "HEAD", "the same commit"),
    ],
)
def test_what_is_no_pair_of_commits_is_refused(tmp_path, commit, good, bad, said):
    commit("only")

    with pytest.raises(SideError, match=said):
        commit_line(tmp_path, good, bad)


def test_histories_without_a_common_commit_are_refused(tmp_path, git, commit):
    commit("one")
    git("checkout", "-q", "--orphan", "other")
    commit("two")

    with pytest.raises(SideError, match="no common history"):
        commit_line(tmp_path, "main", "other")


def test_a_directory_without_git_is_refused(tmp_path):
    with pytest.raises(SideError, match="not in a git repository, so it has no revisions"):
        commit_line(tmp_path, "a", "b")


def test_the_repository_is_only_read(tmp_path, commit):
    good = commit("good")
    commit("bad")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    commit_line(tmp_path, good, "HEAD")

    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
