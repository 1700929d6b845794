"""What an installation gets: every file that the code reads, the licence, and no more."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ddp_perf.errors import ExitCode
from ddp_perf.session.result import write_results
from tests.builders import make_cases, make_measurement, make_result
from tests.pages import page_text
from tests.projects import REPOSITORY

# The structure of a step is the same, whatever else runs on the machine.
SMALL = ("-k", "structure", "--ddp-launches=2", "--ddp-steps=12", "--ddp-budget=0")
LARGEST_SDIST = 2 << 20  # the package alone, without tests, pages and stored sessions
PROJECT = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The directory of the sdist and of the wheel that is made of it, without a network."""
    root = tmp_path_factory.mktemp("project")  # a build writes beside its sources
    for name in PROJECT:
        shutil.copy(REPOSITORY / name, root / name)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "ddp_perf", root / "ddp_perf", ignore=ignored)
    build = [sys.executable, "-m", "build", "--no-isolation", str(root)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "dist"


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_the_sdist_has_the_package_and_what_its_build_reads(built, wheel):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as opened:
        files = {one.name.partition("/")[2] for one in opened if one.isfile()}
    package = {name for name in wheel.namelist() if ".dist-info/" not in name}

    written = {"PKG-INFO", "setup.cfg"}
    found = {name for name in files if not name.startswith("ddp_perf.egg-info/")}
    assert found == {*package, *PROJECT, *written}
    assert path.stat().st_size < LARGEST_SDIST


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


# ---- what it needs ----


def required(*more):
    """Return the distributions that the package requires without its extras, and that they do."""
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    waiting, found = [*more, *re.findall(r'"(.*?)"', listed)], {}
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found[name] = metadata.distribution(name)
        waiting += found[name].requires or []
    return found.values()


def make_environment(root, built, *more):
    """Make a virtual environment with the wheel and what it requires; return how to run there."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "venv"], check=True)
    (site,) = (root / "venv").glob("lib/python*/site-packages")
    for distribution in required(*more):
        for top in {path.parts[0] for path in distribution.files} - {".."}:
            (site / top).exists() or (site / top).symlink_to(distribution.locate_file(top))
    (path,) = built.glob("*.whl")
    programs = root / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    install = [f"--python={programs / 'python'}", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, *install, str(path)], check=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    variables = {**clean, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(program, *arguments):
        return subprocess.run(
            [programs / program, *arguments],
            cwd=root,
            env=variables,
            capture_output=True,
            encoding="utf-8",
        )

    return site, run


@pytest.fixture(scope="module")
def command(built, tmp_path_factory):
    """``command("compare", …)`` runs ddp-perf where only the wheel and what it requires are."""
    root = tmp_path_factory.mktemp("reader")
    _, run = make_environment(root, built)
    cases = make_cases(world_sizes=[1, 2, 4])
    for name, step_s in (("a.json", 0.010), ("b.json", 0.020)):
        measurements = [make_measurement(case, [step_s, 1.01 * step_s]) for case in cases]
        write_results(root / name, [make_result(measurements)], complete=True)
    (root / "train.py").touch()
    return functools.partial(run, "ddp-perf")


def test_results_are_read_without_torch_and_pytest(command):
    history = ("--history", "sqlite:///h.sqlite")
    for arguments, code in (
        (("compare", "a.json", "b.json"), 1),
        (("report", "a.json"), 0),
        (("history", "import", "a.json", *history), 0),
        (("history", *history), 0),
        (("site", *history), 0),
        (("init",), 0),
    ):
        done = command(*arguments)
        assert (done.returncode, done.stderr) == (code, ""), arguments


def test_doctor_needs_no_torch_and_states_that_it_is_missing(command):
    done = command("doctor", "--json")

    assert (done.returncode, done.stderr) == (ExitCode.RED, "")
    missing = [one for one in json.loads(done.stdout)["spoilers"] if "torch>=2.6" in one["what"]]
    assert [one["remedy"].endswith("-m pip install 'torch>=2.6'") for one in missing] == [True]


@pytest.mark.slow
def test_what_launches_says_in_one_line_what_it_lacks(command):
    done = command("try", "train.py")

    assert done.returncode == ExitCode.USAGE
    (line,) = [line for line in done.stderr.splitlines() if "lacks" in line]
    assert line.endswith("python -m pip install 'torch>=2.6'")


@pytest.mark.slow
def test_with_pytest_and_torch_the_wheel_writes_a_project_gates_it_and_runs_a_duel(built, tmp_path):
    site, run = make_environment(tmp_path, built, "pytest")
    torch = Path(importlib.util.find_spec("torch").origin).parents[1]
    (site / "torch-of-this-machine.pth").write_text(f"{torch}\n", encoding="utf-8")
    gate = ("python", "-m", "pytest", "-m", "perf and cpu", *SMALL)

    assert run("ddp-perf", "init").returncode == 0
    first = run(*gate, "--save-baseline")
    second = run(*gate, "--ddp-history=sqlite:///h.sqlite")
    sides = ("env:OMP_NUM_THREADS=1", "env:OMP_NUM_THREADS=2")
    duel = run("ddp-perf", "duel", *sides, "--budget=2m", "--json")

    assert " 2 skipped" in first.stdout, first.stdout  # stored just now
    assert " 2 passed" in second.stdout, second.stdout
    # On a busy machine the budget may have no room for a pair, but each side was launched.
    assert duel.returncode in (ExitCode.GREEN, ExitCode.RED, ExitCode.UNDECIDED), duel.stderr
    assert list((tmp_path / "artifacts" / "duel").glob("*.json"))
    assert run("ddp-perf", "site", "--history=sqlite:///h.sqlite").returncode == 0
    # Two launches may leave a time undecided, but nothing is slower.
    overview = page_text((tmp_path / "site" / "index.html").read_bytes())
    assert "No open regression\n2 cases on 1 machine" in overview
