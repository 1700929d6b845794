"""Each kind of side, and the text of each refusal."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ddp_perf.duel.sides.preparing import parse_side
from ddp_perf.errors import SideError
from tests.repositories import Repository


def refusal(text, root):
    with pytest.raises(SideError) as refused:
        parse_side(text, "A", root)
    message = str(refused.value)
    assert len(message.splitlines()) <= 2
    return message


def test_the_tree_is_labelled_with_its_commit_and_whether_it_has_changes(project):
    clean = parse_side(".", "B", project.path)
    project.write({"model.py": "STEPS = 2\n"})
    changed = parse_side(".", "B", project.path)

    short = project.first[:7]
    assert (clean.kind, clean.commit, clean.label) == (
        "tree",
        project.first,
        f"the working tree ({short})",
    )
    assert changed.label == f"the working tree ({short} with uncommitted changes)"
    assert (clean.changed, changed.changed) == (False, True)


def test_the_tree_needs_no_git(tmp_path):
    side = parse_side(".", "B", tmp_path)
    assert (side.label, side.commit) == ("the working tree", None)


@pytest.mark.parametrize("spec", ["main", "v1", "HEAD~0", "main@{0}", ":/first", "heads/main"])
def test_a_revision_is_its_commit(project, spec):
    project.git("tag", "--annotate", "--message", "v1", "v1")
    side = parse_side(spec, "A", project.path)
    assert (side.kind, side.commit) == ("revision", project.first)
    assert side.label == f"{spec} ({project.first[:7]})"


def test_a_hash_is_its_own_label(project):
    assert parse_side(project.first[:10], "A", project.path).label == project.first[:7]


def test_a_wrong_name_of_a_branch_gets_the_nearest_one(project):
    project.git("branch", "feature/buckets")
    message = refusal("feature/bucket", project.path)
    assert message.endswith("did you mean 'feature/buckets'?")


def test_a_name_near_nothing_gets_the_kinds_of_sides(project):
    assert "python:PATH" in refusal("qqqq", project.path)


def test_a_name_of_both_a_revision_and_a_file_needs_its_full_name(project):
    project.git("branch", "docs")
    project.write({"docs/index.md": ""})
    message = refusal("docs", project.path)
    assert message.endswith("for the revision write refs/heads/docs")
    assert parse_side("refs/heads/docs", "A", project.path).commit == project.first


def test_a_directory_of_a_commit_is_no_commit(project):
    assert "a tree of git, not a commit" in refusal("HEAD^{tree}", project.path)


def test_a_root_outside_of_git_has_no_revisions(tmp_path):
    message = refusal("main", tmp_path)
    assert message.startswith(f"{tmp_path}: not in a git repository")


def test_a_revision_needs_git(project, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal("main", project.path).startswith("git cannot be started")


def test_an_old_git_is_refused(project, monkeypatch, tmp_path):
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\necho git version 2.30.2\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal("main", project.path).endswith("needs git 2.32 or later; update it")


def test_a_repository_of_another_user_gets_the_remedy_of_git(project, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    message = refusal("main", project.path)
    assert message.endswith(f"run git config --global --add safe.directory {project.path}")


def test_a_commit_that_a_shallow_clone_lacks_is_to_be_fetched(project, tmp_path):
    project.commit({"model.py": "STEPS = 2\n"}, "second")
    shallow = tmp_path / "shallow"
    url = f"file://{project.path}"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", url, shallow], check=True)

    assert "git fetch --unshallow" in refusal(project.first, shallow)
    assert parse_side("HEAD", "A", shallow).kind == "revision"


def test_a_revision_with_submodules_is_refused(project, tmp_path):
    other = Repository(tmp_path / "other")
    allow = ("-c", "protocol.file.allow=always")
    project.git(*allow, "submodule", "--quiet", "add", str(other.path), "third_party/other")
    project.git("commit", "--quiet", "--message", "a submodule")

    assert "main" in refusal("main", project.path)
    assert "has the submodule third_party/other" in refusal("main", project.path)
    assert parse_side("main~1", "A", project.path).commit == project.first


def test_a_project_that_an_older_revision_lacks_is_refused(project):
    project.commit({"training/model.py": ""}, "a project in a directory")
    message = refusal("main~1", project.path / "training")
    assert "has no directory training" in message
    assert parse_side("main", "A", project.path / "training").kind == "revision"


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ("", "name a revision"),
        ("--exec=touch x", "name a revision"),
        ("torch=2.11.0", "write torch==2.11.0"),
        ("torch>=2.11", "write torch==2.11.0"),
        ("OMP_NUM_THREADS=2", "write env:OMP_NUM_THREADS=VALUE"),
        (sys.executable, f"write python:{sys.executable}"),
        ("command: docker run image", "write 'command: docker run … {command}'"),
        ("env:NAME", "write env:NAME=VALUE"),
        ("env:=2", "write env:NAME=VALUE"),
        ("env:A=1,A=2", "A has two values; remove one"),
        ("env:OMP_NUM_THREADS=many", "write a whole number"),
        ("env:DDP_PERF_DATA=/data", "set it in the environment"),
        ("env:CUDA_DEVICE_ORDER=FASTEST_FIRST", "itself sets CUDA_DEVICE_ORDER"),
        ("env:OPENBLAS_NUM_THREADS=2", "itself sets OPENBLAS_NUM_THREADS"),
        ("env:PYTHONPATH=/elsewhere", "itself sets PYTHONPATH"),
        ("env:RANK=1", "itself sets RANK"),
        ("python:/nowhere/python", "no such interpreter"),
        ("python:", "no such interpreter"),
        ("torch==2.*", "not an exact version"),
        ("torch==2.11.0,numpy", "'numpy' is not an exact version"),
        ("torch==2.11.0,Torch==2.10.0", "torch has two versions"),
    ],
)
def test_a_side_that_cannot_be_meant_is_refused_with_the_remedy(project, spec, remedy):
    assert remedy in refusal(spec, project.path)


def test_an_environment_directory_is_not_its_interpreter(tmp_path):
    assert refusal(f"python:{tmp_path}", tmp_path).endswith(f"write python:{tmp_path}/bin/python")


def test_a_value_may_have_commas(tmp_path):
    side = parse_side("env:NCCL_ALGO=Ring,Tree,PYTHONHASHSEED=3", "B", tmp_path)
    assert (side.kind, side.label) == ("env", "NCCL_ALGO=Ring,Tree,PYTHONHASHSEED=3")


def test_packages_are_labelled_in_one_order(tmp_path):
    side = parse_side("torch==2.11.0, NumPy==2.1.0", "A", tmp_path)
    assert (side.kind, side.label) == ("packages", "numpy==2.1.0, torch==2.11.0")


def test_a_long_command_has_a_short_label(tmp_path):
    spec = "command: docker run --rm --volume /data:/data registry/image:latest {command}"
    side = parse_side(spec, "A", tmp_path)
    assert side.kind == "command"
    assert len(side.label) == 60
