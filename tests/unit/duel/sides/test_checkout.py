"""Checkouts in the cache: whole, unmistaken, bounded, and away from the user's repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading

import pytest

from ddp_perf.duel.sides import checkout
from ddp_perf.duel.sides.checkout import checked_out, find_repository
from ddp_perf.duel.sides.preparing import parse_side, prepare
from ddp_perf.errors import SideError
from tests.repositories import every_byte


def files_of(spec, root, lines=None):
    """Prepare a side, and return the files of its root, without .git."""
    side = parse_side(spec, "A", root)
    with prepare(side, root, on_progress=[].append if lines is None else lines.append) as prepared:
        return {
            str(path.relative_to(prepared.root)): path.read_text(encoding="utf-8")
            for path in prepared.root.rglob("*")
            if path.is_file() and ".git" not in path.parts
        }


def test_a_revision_has_its_files_and_not_those_of_the_tree(project):
    project.commit({"model.py": "STEPS = 2\n", "new.py": ""}, "second")
    project.write({"model.py": "STEPS = 3\n", "untracked.py": ""})

    assert files_of("main~1", project.path) == {"model.py": "STEPS = 1\n"}
    assert files_of("main", project.path) == {"model.py": "STEPS = 2\n", "new.py": ""}


def test_a_second_use_finds_the_checkout(project, cache):
    lines = []
    files_of("main", project.path, lines)
    assert lines == [f"checking out {project.first[:12]}"]
    content = cache / "checkouts" / project.first / "content" / "model.py"
    before = content.stat()
    lines.clear()

    files_of(project.first, project.path, lines)

    assert lines == []
    assert content.stat().st_ino == before.st_ino


def test_others_cannot_reach_what_ranks_will_run_whatever_the_umask(project, cache):
    before = os.umask(0)
    try:
        files_of("main", project.path)
    finally:
        os.umask(before)

    assert {path.stat().st_mode & 0o777 for path in (cache, cache / "checkouts")} == {0o700}


def test_a_project_in_a_directory_of_the_repository_has_that_root(project):
    project.commit({"training/bench_configs/a.yaml": "a"}, "a project")
    root = project.path / "training"
    side = parse_side("main", "A", root)
    with prepare(side, root, on_progress=print) as prepared:
        assert prepared.root.name == "training"
        assert (prepared.root / "bench_configs" / "a.yaml").is_file()


@pytest.mark.parametrize("damage", ["changed", "changed unseen", "removed", "without git", "half"])
def test_a_damaged_checkout_is_made_again(project, cache, damage):
    whole = files_of("main", project.path)
    entry = cache / "checkouts" / project.first
    model = entry / "content" / "model.py"
    if damage == "changed":
        model.write_text("STEPS = 99\n")
    elif damage == "changed unseen":  # size and time are those of before
        before = model.stat()
        model.write_text("STEPS = 9\n")
        os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert model.stat().st_size == before.st_size
    elif damage == "removed":
        model.unlink()
    elif damage == "without git":
        shutil.rmtree(entry / "content" / ".git")
    else:  # as SIGKILL leaves it
        model.unlink()
        (entry / "whole").unlink()

    assert files_of("main", project.path) == whole
    assert not list((cache / "checkouts").glob("old-*"))


def test_a_checkout_that_is_changed_in_use_is_not_taken_from_its_user(project, cache):
    side = parse_side("main", "A", project.path)
    with prepare(side, project.path, on_progress=print) as prepared:
        (prepared.root / "model.py").write_text("STEPS = 99\n")
        with pytest.raises(SideError, match="were changed while a duel uses them"):
            files_of("main", project.path)
    assert files_of("main", project.path) == {"model.py": "STEPS = 1\n"}


def test_a_file_that_ranks_write_beside_the_others_stays(project):
    lines = []
    side = parse_side("main", "A", project.path)
    with prepare(side, project.path, on_progress=lines.append) as prepared:
        (prepared.root / "cached.pt").write_text("")
    assert files_of("main", project.path, lines).keys() == {"model.py", "cached.pt"}
    assert len(lines) == 1


def test_line_ends_that_git_would_change_are_no_damage(project):
    (project.path / "crlf.txt").write_bytes(b"a\r\n")
    project.commit({"a.py": ""}, "a")
    project.git("add", "crlf.txt")
    project.commit({".gitattributes": "* text=auto eol=lf\n"}, "line ends")
    lines = []
    files_of("main", project.path, lines)
    files_of("main", project.path, lines)
    assert len(lines) == 1


def test_a_failed_checkout_leaves_nothing(project, cache):
    repository = find_repository(project.path)
    missing = "1" * 40
    with (
        pytest.raises(SideError, match="cannot be checked out"),
        checked_out(missing, repository, print),
    ):
        pytest.fail("there is no such commit")
    assert not (cache / "checkouts" / missing).exists()


def test_a_checkout_outlives_the_objects_of_the_users_repository(project):
    files = files_of("main", project.path)
    objects = project.path / ".git" / "objects"
    side = parse_side("main", "A", project.path)
    shutil.move(objects, project.path / "lost")
    objects.mkdir()

    lines = []
    with checked_out(side.commit, find_repository(project.path), lines.append) as directory:
        assert (directory / "model.py").read_text() == files["model.py"]
    assert lines == []


def test_a_shallow_clone_has_its_commit_as_a_side(project, tmp_path):
    project.commit({"model.py": "STEPS = 2\n"}, "second")
    shallow = tmp_path / "shallow"
    url = f"file://{project.path}"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", url, shallow], check=True)

    assert files_of("HEAD", shallow) == {"model.py": "STEPS = 2\n"}


def test_a_hook_of_git_does_not_lead_to_its_repository(project, tmp_path, monkeypatch):
    """In a hook git names the repository, the index and the tree that it works on."""
    index = tmp_path / "index"
    index.write_bytes(b"not an index")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(index))

    side = parse_side("main", "A", project.path)
    with prepare(side, project.path, on_progress=print) as prepared:
        assert (prepared.root / "model.py").is_file()
        assert not {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} & prepared.environ.keys()
    assert index.read_bytes() == b"not an index"
    assert not (tmp_path / "elsewhere").exists()


def test_no_hook_or_filter_of_the_user_runs(project, tmp_path, monkeypatch):
    ran = tmp_path / "ran"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    hook = hooks / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    (tmp_path / "gitconfig").write_text(
        f"[core]\n\thooksPath = {hooks}\n"
        f'[filter "lfs"]\n\tsmudge = touch {ran} && cat\n\trequired = true\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    pointer = "version https://git-lfs.github.com/spec/v1\n"
    project.commit({".gitattributes": "*.bin filter=lfs\n", "weights.bin": pointer}, "large")

    lines = []
    files = files_of("main", project.path, lines)

    assert files["weights.bin"] == pointer
    assert not ran.exists()
    assert lines[-1].endswith("files that a filter keeps elsewhere (git-lfs) stay pointers")


def test_the_checkouts_that_were_used_last_stay(project, cache, monkeypatch):
    monkeypatch.setattr(checkout, "_MOST", 2)
    commits = [project.commit({"model.py": f"STEPS = {n}\n"}, str(n)) for n in range(2, 6)]
    in_use = parse_side(commits[0], "A", project.path)
    with prepare(in_use, project.path, on_progress=print) as prepared:
        for commit in commits[1:]:
            files_of(commit, project.path)
        assert (prepared.root / "model.py").is_file()
        files_of(commits[3], project.path)

    left = {path.name for path in (cache / "checkouts").iterdir() if path.is_dir()}
    assert left == {commits[0], commits[3]}
    files_of(commits[1], project.path)
    left = {path.name for path in (cache / "checkouts").iterdir() if path.is_dir()}
    assert left == {commits[1], commits[3]}
    locks = {path.stem for path in (cache / "checkouts").glob("*.lock")}
    assert locks == left


USE = """
import sys
from pathlib import Path
from ddp_perf.duel.sides.preparing import parse_side
from ddp_perf.duel.sides.preparing import prepare

root = Path(sys.argv[1])
with prepare(parse_side("main", "A", root), root, on_progress=print) as prepared:
    assert len(list(prepared.root.glob("*.txt"))) == 200
"""


def test_several_processes_make_one_checkout(project, cache):
    project.commit({f"{n}.txt": "a" * 1000 for n in range(200)}, "many files")
    command = [sys.executable, "-c", USE, str(project.path)]
    users = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [user.communicate()[0] for user in users]

    assert [user.returncode for user in users] == [0, 0, 0]
    assert sum("checking out" in output for output in outputs) == 1


def test_a_cache_that_cannot_be_written_is_refused_with_the_remedy(project, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SideError, match="set XDG_CACHE_HOME to a directory"):
        files_of("main", project.path)


def test_ranks_of_a_checkout_import_nothing_from_the_tree(project, tmp_path, monkeypatch):
    project.commit({"src/pkg/__init__.py": "", "lib/tool.py": ""}, "a source directory")
    other = tmp_path / "site"
    other.mkdir()
    paths = [str(project.path / "lib"), str(other), str(project.path / "gone")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.syspath_prepend(str(project.path))

    side = parse_side("main", "A", project.path)
    with prepare(side, project.path, on_progress=print) as prepared:
        found = prepared.environ["PYTHONPATH"].split(os.pathsep)
        root = str(prepared.root)
    assert found == [f"{root}/lib", root, f"{root}/src", str(other)]


def test_a_revision_with_its_own_package_is_measured_by_that_one(project):
    before = parse_side("main", "A", project.path)
    project.commit({"ddp_perf/launch/server.py": ""}, "the package")
    with prepare(before, project.path, on_progress=print) as prepared:
        assert prepared.package != prepared.root
    after = parse_side("main", "A", project.path)
    with prepare(after, project.path, on_progress=print) as prepared:
        assert prepared.package == prepared.root


def test_the_repository_stays_byte_for_byte(project):
    project.commit({".gitignore": "*.log\n"}, "ignore")
    before = every_byte(project.path)
    os.utime(project.path / "model.py", (1e9, 1e9))  # git would write the index after a look at it
    files_of("main~1", project.path)
    parse_side(".", "B", project.path)
    assert every_byte(project.path) == before


def test_a_thread_that_waits_is_told_for_what(project, cache):
    """Two duels of one user: the second waits for the checkout that the first one makes."""
    repository = find_repository(project.path)
    lines, inside, go_on = [], threading.Event(), threading.Event()

    def slow(line):
        inside.set()
        go_on.wait(30)

    def make():
        with checked_out(project.first, repository, slow):
            pass

    first = threading.Thread(target=make)
    first.start()
    inside.wait(30)

    def say(line):
        lines.append(line)
        go_on.set()

    with checked_out(project.first, repository, say) as directory:
        assert (directory / "model.py").is_file()
    first.join()
    assert lines[0].startswith("waiting for another process")
