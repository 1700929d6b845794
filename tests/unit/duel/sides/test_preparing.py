"""Sides that are the tree: as it is, with variables, or in a command."""

from __future__ import annotations

import os
import sys

import pytest

from ddp_perf.duel.sides.preparing import parse_side, prepare
from ddp_perf.errors import SideError
from ddp_perf.launch.interpreter import package_directory


def prepared_side(spec, root):
    with prepare(parse_side(spec, "B", root), root, on_progress=print) as prepared:
        return prepared


def test_the_tree_is_launched_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    prepared = prepared_side(".", tmp_path)
    assert prepared.root == tmp_path
    assert prepared.interpreter == sys.executable
    assert prepared.environ == dict(os.environ)
    assert prepared.package == package_directory()
    assert (prepared.variables, prepared.command) == ({}, None)


def test_variables_of_a_side_replace_those_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    prepared = prepared_side("env:NCCL_ALGO=Tree,NCCL_PROTO=", tmp_path)
    assert prepared.variables == {"NCCL_ALGO": "Tree", "NCCL_PROTO": ""}
    assert prepared.environ == {**os.environ, "NCCL_ALGO": "Tree", "NCCL_PROTO": ""}


def test_a_command_is_kept_as_it_was_typed(tmp_path):
    prepared = prepared_side("command: docker run 'my image' {command}", tmp_path)
    assert prepared.command == "docker run 'my image' {command}"


def test_a_revision_reads_the_data_that_the_user_names(project, monkeypatch):
    project.commit({"a.py": ""}, "a")
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("DDP_PERF_DATA", "texts")  # not in git

    for spec in ("HEAD", "."):
        environ = prepared_side(spec, project.path).environ
        assert environ["DDP_PERF_DATA"] == str(project.path / "texts")


def test_a_user_without_a_home_is_refused_and_gets_no_directory_named_so(project, monkeypatch):
    project.commit({"a.py": ""}, "a")
    monkeypatch.chdir(project.path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)

    with pytest.raises(SideError, match="set XDG_CACHE_HOME"):
        prepared_side("HEAD", project.path)

    assert not (project.path / "~").exists()


def test_ranks_of_each_side_import_from_where_pytest_does(project, tmp_path):
    project.commit({"src/model.py": "LAYERS = 1\n"}, "a package")
    paths = [str(project.path), str(project.path / "src"), str(tmp_path / "other")]

    for spec in (".", "HEAD"):
        side = parse_side(spec, "B", project.path)
        with prepare(side, project.path, on_progress=print, import_paths=paths) as prepared:
            root = str(prepared.root)
            wanted = (root, f"{root}/src", str(tmp_path / "other"))
            assert prepared.import_paths == wanted
            assert (prepared.root / "src" / "model.py").is_file()
