"""The wheel that an installation gets: every file that the code reads, the licence, and no more."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser

import pytest

from tests.projects import REPOSITORY

PROJECT = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built without a network from a copy: a build writes beside its sources."""
    root = tmp_path_factory.mktemp("project")
    for name in PROJECT:
        shutil.copy(REPOSITORY / name, root / name)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "ddp_perf", root / "ddp_perf", ignore=ignored)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", f"--wheel-dir={root}", str(root)], check=True)
    (path,) = root.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel):
    package = REPOSITORY / "ddp_perf"
    files = {
        str(path.relative_to(REPOSITORY))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert "ddp_perf/py.typed" in files
    assert packed == files


def test_the_metadata_state_licence_python_and_plugin(wheel):
    def read(name):
        (path,) = [each for each in wheel.namelist() if each.endswith(f".dist-info/{name}")]
        return wheel.read(path).decode("utf-8")

    metadata = Parser().parsestr(read("METADATA"))

    assert metadata["License-Expression"] == "Apache-2.0"
    assert read("licenses/LICENSE") == (REPOSITORY / "LICENSE").read_text("utf-8")
    assert metadata["Requires-Python"] == ">=3.10"
    assert "ddp-perf = ddp_perf.cli.app:app" in read("entry_points.txt")
    assert "ddp_perf.plugin = ddp_perf.plugin" in read("entry_points.txt")
