"""Interpreters as sides: each that cannot run ranks is refused."""

from __future__ import annotations

import os
import sys

import pytest

from ddp_perf.duel.sides import virtual_environment as module
from ddp_perf.duel.sides.preparing import parse_side, prepare
from ddp_perf.duel.sides.virtual_environment import check_interpreter, parse_interpreter
from ddp_perf.errors import SideError


@pytest.fixture
def script(tmp_path):
    """A function that writes an executable file."""

    def write(text):
        path = tmp_path / "python"
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    return write


def test_this_interpreter_runs_the_ranks_of_its_side(tmp_path):
    side = parse_side(f"python:{sys.executable}", "B", tmp_path)
    with prepare(side, tmp_path, on_progress=print) as prepared:
        assert prepared.interpreter == sys.executable
        assert prepared.root == tmp_path


def test_a_link_to_an_interpreter_stays_a_link(tmp_path):
    """The interpreter of a virtual environment is a link to another one, without its packages."""
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert parse_interpreter(str(link)) == str(link)


def test_a_name_is_looked_up_in_path(script, tmp_path, monkeypatch):
    path = script("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert parse_interpreter("python") == path


def test_a_file_that_is_not_executable_is_refused(tmp_path):
    (tmp_path / "python").write_text("")
    with pytest.raises(SideError, match="cannot be executed"):
        parse_interpreter(str(tmp_path / "python"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not a program", "cannot be started"),
        ("#!/bin/sh\necho 3 8\n", "Python 3.8; ranks need 3.10 or later"),
        ("#!/bin/sh\necho no module named encodings >&2; exit 1\n", "no module named encodings"),
    ],
)
def test_an_interpreter_that_does_not_work_is_refused(script, text, reason):
    with pytest.raises(SideError, match=reason):
        check_interpreter(script(text), os.environ)


def test_a_package_that_is_missing_gets_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(module, "missing_in", lambda interpreter, environ: ["msgspec>=0.19"])
    with pytest.raises(SideError) as refused:
        check_interpreter(sys.executable, os.environ)
    assert str(refused.value).splitlines()[1] == (
        f"{sys.executable} -m pip install 'msgspec>=0.19'"
    )


def test_a_torch_that_cannot_be_imported_is_refused_before_any_launch(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13 is missing')")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with pytest.raises(SideError, match=r"libcudart\.so\.13 is missing"):
        check_interpreter(sys.executable, environ)
