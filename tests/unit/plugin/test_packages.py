"""An interpreter without the plugin's packages ends with one line, however pytest finds it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_perf.plugin.packages import PACKAGES
from tests.projects import REPOSITORY

# What pytest itself imports, for one or another version of Python.
PYTEST = {
    *("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"),
    *("py", "exceptiongroup", "tomli", "typing_extensions"),
}
ENTRY_POINT = "[pytest11]\nddp_perf.plugin = ddp_perf.plugin\n"


@pytest.fixture
def clone(tmp_path):
    """The package in a directory of its own, and an interpreter that has only pytest.

    The packages of the interpreter are links in the directory ``site``.
    """
    (tmp_path / "site").mkdir()
    add_packages(tmp_path, PYTEST)
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "ddp_perf").symlink_to(REPOSITORY / "ddp_perf")
    return tmp_path


def add_packages(directory, names):
    for spec in filter(None, map(importlib.util.find_spec, names)):
        origin = Path(spec.origin)
        package = origin.parent if spec.submodule_search_locations else origin
        (directory / "site" / package.name).symlink_to(package)


def python(clone, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-S", "-B", *arguments],
        cwd=clone / "clone",
        env={**environment, "PYTHONPATH": str(clone / "site"), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
    )


def leave_metadata(clone):
    metadata = clone / "clone" / "ddp_perf.egg-info"  # as an editable install leaves it
    metadata.mkdir()
    (metadata / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: ddp-perf\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINT)


def copy_conftest(clone):
    for name in ("conftest.py", "pytest.ini"):
        shutil.copy(REPOSITORY / name, clone / "clone")


@pytest.mark.parametrize("loaded_by", [leave_metadata, copy_conftest])
def test_without_the_packages_pytest_ends_with_one_line(clone, loaded_by):
    loaded_by(clone)

    done = python(clone, "-m", "pytest", "-m", "perf and cpu", "--ddp-steps=5")

    assert (done.returncode, done.stdout) == (pytest.ExitCode.USAGE_ERROR, "")
    (line,) = filter(None, done.stderr.splitlines())
    assert line == (
        f"ERROR: {sys.executable} has no filelock, msgspec, pynvml, yaml:"
        f" {sys.executable} -m pip install filelock msgspec nvidia-ml-py PyYAML"
    )


@pytest.mark.parametrize(
    ("file", "remedy"),
    [
        (".venv/bin/activate", "source .venv/bin/activate"),
        ("ci/bench", "ci/bench makes .venv, which has all packages"),
    ],
)
def test_the_line_names_the_environment_of_the_clone_or_what_makes_it(clone, file, remedy):
    copy_conftest(clone)
    (clone / "clone" / file).parent.mkdir(parents=True)
    (clone / "clone" / file).touch()

    (line,) = filter(None, python(clone, "-m", "pytest").stderr.splitlines())
    assert line.endswith(f"yaml: {remedy}")


def test_the_line_names_only_what_is_missing(clone):
    leave_metadata(clone)
    add_packages(clone, {"filelock", "msgspec", "pynvml"})

    assert " has no yaml: " in python(clone, "-m", "pytest", "--ddp-steps=5").stderr


def test_the_listed_packages_are_those_that_the_plugin_imports(clone):
    add_packages(clone, PACKAGES)
    script = f"import sys, ddp_perf.plugin.hooks; print(*{set(PACKAGES)} - sys.modules.keys())"

    done = python(clone, "-c", script)

    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
