"""A script in its private tree: it reads the user's files, and its writes do not reach them."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ddp_perf.worker.script import private_tree
from ddp_perf.worker.script.private_tree import PrivateTree

KEPT = "the user's"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The user's project, which is the working directory, with a folder of data beside it."""
    root = tmp_path / "project"
    for name in ("runs/last/model.pt", "data/train.txt", "log.txt", "../beside/more.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(KEPT)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def tree(project, tmp_path):
    """The tree, entered. What is changed now has a later time than the tree."""
    one = PrivateTree(tmp_path / "launch" / "scratch", [str(project)])
    first = changed(tmp_path / "clock")
    while changed(tmp_path / "clock") == first:
        pass
    with one.entered():
        yield one


def changed(file):
    """Change a file, and return the time that it has then: the clock ticks every few ms."""
    file.write_text("")
    return file.stat().st_ctime_ns


@pytest.fixture
def contents(project):
    """``contents()``: each file of the user and what it contains."""
    beside = project.parent / "beside"
    return lambda: {
        str(file): file.read_text()
        for folder in (project, beside)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def save(path):
    """Write a file as a script does that writes it by Python."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("new")


def test_the_files_of_the_user_are_read_by_the_same_paths(tree, project):
    for name in ("data/train.txt", "../beside/more.txt", str(project / "log.txt")):
        assert Path(name).read_text(encoding="utf-8") == KEPT
    assert sorted(os.listdir()) == sorted(os.listdir(project)) == ["data", "log.txt", "runs"]
    assert Path.cwd() != project
    assert (tree.own_files(), tree.changed_outside()) == ([], [])


WRITES = {
    "over a file": lambda: save("runs/last/model.pt"),
    "by torch": lambda: torch.save({}, "runs/last/model.pt"),
    "by torch, by name": lambda: torch.save({}, f=Path("runs/last/model.pt")),
    "by an absolute path": lambda: save(f"{os.getcwd()}/runs/last/model.pt"),
    "by a resolved path": lambda: save(Path("runs").resolve() / "last/model.pt"),
    "by bytes": lambda: save(b"runs/last/model.pt"),
    "in place": lambda: os.truncate("runs/last/model.pt", 0),
    "by another name that then replaces it": lambda: (
        save("runs/last/new"),
        os.replace("runs/last/new", "runs/last/model.pt"),
    ),
    "through a moved folder": lambda: (
        os.rename("runs/last", "runs/first"),
        save("runs/first/model.pt"),
        os.rename("runs/first", "runs/last"),
    ),
    "in a folder that it is in": lambda: (os.chdir("runs/last"), save("model.pt")),
    "through a link of its own": lambda: (
        os.symlink("runs", "latest"),
        save("latest/last/model.pt"),
    ),
    "through .. of a folder": lambda: save("data/../runs/last/model.pt"),
    "in a folder that it empties": lambda: (
        shutil.rmtree("runs"),
        os.makedirs("runs/last"),
        save("runs/last/model.pt"),
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_is_written_does_not_reach_the_user(tree, contents, write):
    before = contents()

    write()

    assert contents() == before
    assert tree.own_files() == ["runs/last/model.pt"]
    assert tree.changed_outside() == []


def test_a_script_that_changes_to_its_own_folder_is_in_the_mirror_of_it(tree, project, contents):
    before = contents()

    os.chdir(project / "data")
    save("model.pt")
    save("../log.txt")

    assert contents() == before
    assert tree.own_files() == ["data/model.pt", "log.txt"]


def test_a_file_that_is_extended_begins_as_the_users(tree, contents):
    before = contents()

    with open("log.txt", "a", encoding="utf-8") as file:
        file.write(" and more")
    sqlite3.connect("data/train.txt").close()
    os.makedirs("runs", exist_ok=True)
    os.remove("runs/last/model.pt")

    assert contents() == before
    assert Path("log.txt").read_text(encoding="utf-8") == f"{KEPT} and more"
    assert not Path("runs/last/model.pt").exists()
    assert tree.own_files() == ["data/train.txt", "log.txt"]


def test_a_file_above_the_working_directory_is_listed_by_its_whole_path(tree, project, contents):
    before = contents()
    save("../beside/more.txt")
    assert contents() == before
    assert tree.own_files() == [str(project.parent / "beside" / "more.txt")]


def test_what_reaches_the_user_is_listed(tree, project, monkeypatch):
    """By an absolute path, in place in a large file, or by a process of its own."""
    monkeypatch.setattr(private_tree, "_LARGEST_COPY", len(KEPT) - 1)
    save(project / "runs" / "new.pt")
    torch.save({}, project / "log.txt")
    with open("data/train.txt", "r+", encoding="utf-8") as file:
        file.write("T")
    save("runs/last/new.pt")
    later = "open('runs/last/model.pt', 'r+').write('T')"
    subprocess.run([sys.executable, "-c", later], check=True)

    names = ("data/train.txt", "log.txt", "runs/last/model.pt", "runs/new.pt")
    assert tree.changed_outside() == [str(project / name) for name in names]
    assert (project / "runs" / "new.pt").read_text() == "new"


def test_only_what_was_changed_is_listed(tree, project, monkeypatch):
    """What was opened to write and not written, or is gone again, is not; what it removed is."""
    monkeypatch.setattr(private_tree, "_LARGEST_COPY", 0)

    open("data/train.txt", "r+", encoding="utf-8").close()
    save(project / "new.pt")
    os.replace(project / "new.pt", project / "newer.pt")
    (project / "log.txt").unlink()

    assert tree.changed_outside() == [str(project / "log.txt"), str(project / "newer.pt")]


def test_temporary_files_and_caches_are_not_listed(tree, tmp_path):
    save(tmp_path / "temporary")
    save(os.devnull)
    for folder in ("data/__pycache__", "new/__pycache__"):
        os.makedirs(folder)
        save(f"{folder}/module.pyc")
    assert (tree.own_files(), tree.changed_outside()) == ([], [])


def test_the_ranks_of_a_launch_share_a_tree(project, tmp_path, contents):
    before = contents()
    trees = [PrivateTree(tmp_path / "scratch", []) for _ in range(2)]

    with trees[0].entered():
        save("runs/last/model.pt")
    with trees[1].entered():
        assert Path("runs/last/model.pt").read_text(encoding="utf-8") == "new"

    assert contents() == before
    assert trees[0].own_files() == trees[1].own_files() == ["runs/last/model.pt"]


def test_after_it_all_is_as_before(project, tmp_path):
    with PrivateTree(tmp_path / "scratch", []).entered():
        pass
    assert Path.cwd() == project
    save("log.txt")
    os.chdir("runs")
    assert (Path("..").resolve(), (project / "log.txt").read_text()) == (project, "new")


def test_another_rank_sees_each_file_whole_while_it_is_copied(tree, monkeypatch):
    seen, copy = [], shutil.copy2

    def noted(source, target):
        seen.append(Path("log.txt").read_text(encoding="utf-8"))
        Path(target).write_text("hal", encoding="utf-8")
        seen.append(Path("log.txt").read_text(encoding="utf-8"))
        return copy(source, target)

    monkeypatch.setattr(shutil, "copy2", noted)
    os.chmod("log.txt", 0o600)

    assert seen == [KEPT, KEPT]
    assert (Path("log.txt").read_text(encoding="utf-8"), tree.own_files()) == (KEPT, ["log.txt"])


def test_another_rank_sees_each_folder_while_it_becomes_real(tree, monkeypatch):
    seen, calls = [], vars(os).copy()
    with monkeypatch.context() as patch:  # pytest removes the directory before it undoes patches
        for name in ("unlink", "rename", "replace"):

            def noted(*paths, call=calls[name]):
                call(*paths)
                seen.append(Path("runs/last/model.pt").exists())

            patch.setattr(os, name, noted)
        save("runs/new.pt")

    assert seen
    assert all(seen)
    assert sorted(os.listdir("runs")) == ["last", "new.pt"]


@pytest.mark.parametrize(
    "libc",
    [SimpleNamespace(), SimpleNamespace(renameat2=lambda *_: -1)],
    ids=["no such call", "a file system without it"],
)
def test_a_folder_becomes_real_without_an_exchange(tree, contents, monkeypatch, libc):
    before = contents()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: libc)
    save("runs/last/model.pt")
    assert contents() == before
    assert tree.own_files() == ["runs/last/model.pt"]


LISTINGS = {
    "os.walk": lambda: [
        os.path.join(place, name) for place, _, names in os.walk("data") for name in names
    ],
    "os.walk from its end": lambda: [
        os.path.join(place, name)
        for place, _, names in os.walk("data", topdown=False)
        for name in names
    ],
    "rglob": lambda: [str(path) for path in Path("data").rglob("*.png")],
    "glob": lambda: [str(path) for path in Path().glob("data/**/*.png")],
    "rglob of all": lambda: [str(path) for path in Path().rglob("*.png")],
    "scandir": lambda: [
        inner.path
        for entry in os.scandir("data")
        if entry.is_dir(follow_symlinks=False)
        for inner in os.scandir(entry)
        if inner.is_file(follow_symlinks=False) and inner.stat().st_size == len(KEPT)
    ],
}


@pytest.mark.parametrize("listing", LISTINGS.values(), ids=LISTINGS)
def test_data_beside_what_the_script_wrote_is_found(project, tmp_path, listing):
    """A link of the user's, and one of the script, stays one that is not followed."""
    (project / "data" / "train").mkdir()
    (project / "data" / "train" / "one.png").write_text(KEPT)
    (project / "data" / "train" / "again").symlink_to(project / "data")
    (project / "data" / "latest").symlink_to(project / "data" / "train")
    (project / "data" / "train.txt").unlink()
    one = PrivateTree(tmp_path / "scratch", [])
    with one.entered():
        os.makedirs("data/processed")
        os.symlink(project / "data" / "train", "data/mine")
        found = [path for path in listing() if path.endswith(".png")]

        assert found == ["data/train/one.png"]
        assert [os.path.islink(f"data/{name}") for name in ("train", "latest", "mine")] == [
            False,
            True,
            True,
        ]
        assert one.own_files() == []


def test_a_folder_that_is_there_is_not_made(tree):
    os.makedirs("runs/last", exist_ok=True)
    with pytest.raises(FileExistsError):
        os.mkdir("runs")
    with tree._alone():
        assert os.path.islink("runs")


def test_what_a_command_adds_or_deletes_is_listed(tree, project):
    save("runs/new.pt")
    save("data/new.txt")
    subprocess.run(["touch", "runs/last/more.pt"], check=True)
    subprocess.run(["rm", str(project / "data/train.txt")], check=True)

    assert tree.changed_outside() == [f"{project}/data/train.txt", f"{project}/runs/last"]


def test_a_tree_is_emptied_by_the_event_of_python_3_10(tree, contents):
    """It has no folder that the path begins at."""
    before = contents()
    sys.audit("shutil.rmtree", "runs")
    assert contents() == before
    assert os.listdir("runs") == []


def test_the_names_of_a_file_are_one_file_of_the_script(tree, contents):
    before = contents()
    os.link("log.txt", "best.txt")
    with open("best.txt", "r+", encoding="utf-8") as file:
        file.write("THE")
    assert contents() == before
    assert (
        Path("log.txt").read_text(encoding="utf-8")
        == Path("best.txt").read_text(encoding="utf-8")
        == "THE user's"
    )


def test_a_process_that_is_forked_meanwhile_keeps_no_lock(tree, monkeypatch):
    """It has the same open file."""
    lock, kept = fcntl.flock, []

    def forked(file, how):
        lock(file, how)
        if how == fcntl.LOCK_EX:
            kept.append(os.dup(file.fileno()))

    monkeypatch.setattr(fcntl, "flock", forked)
    save("log.txt")
    with open(tree._lock, encoding="utf-8") as file:
        lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert kept
    for one in kept:
        os.close(one)


def test_a_file_that_vanishes_while_it_is_listed_is_not_there(tree, project, monkeypatch):
    save(project / "new.pt")
    monkeypatch.setattr(os.path, "lexists", lambda path: True)
    (project / "new.pt").unlink()
    assert tree.changed_outside() == []
