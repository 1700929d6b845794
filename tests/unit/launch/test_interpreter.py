"""The packages that a rank needs, and those that an interpreter lacks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ddp_perf.launch.interpreter import (
    RANK_PACKAGES,
    install_command,
    missing_here,
    missing_in,
)

ROOT = Path(__file__).parents[3]


def test_they_are_dependencies_of_the_package_in_the_same_versions():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lists = re.findall(r"^(?:dependencies|run) = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)

    assert len(lists) == 2
    assert set(RANK_PACKAGES.values()) <= set(re.findall(r'"(.*?)"', "".join(lists)))


def test_this_interpreter_lacks_nothing():
    assert missing_here() == []
    assert missing_in(sys.executable) == []


def test_an_interpreter_lacks_what_it_cannot_import(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)

    missing = missing_in(str(bare))

    assert missing == list(RANK_PACKAGES.values())
    assert install_command(["msgspec>=0.19"], "/venv/bin/python") == (
        "/venv/bin/python -m pip install 'msgspec>=0.19'"
    )


def test_an_interpreter_that_does_not_exist_is_an_error():
    with pytest.raises(FileNotFoundError):
        missing_in("/no/such/python")
