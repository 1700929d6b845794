"""``ddp-perf init``: the files that it writes, what it refuses, and what it leaves as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.config.loading import Overrides, load_cases, suite_schema
from ddp_perf.core.metric import EXACT, METRICS
from tests.projects import REPOSITORY

FILES = [
    "bench_configs/example.yaml",
    "bench_configs/schema.json",
    "perf_workload.py",
    "pytest.ini",
    "tests/test_perf.py",
    "tests/test_work.py",
]


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments):
    return CliRunner().invoke(app, ["init", *arguments])


def written(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*.*"))


def test_it_writes_its_files_and_ends_in_the_next_command(directory):
    done = init()

    assert (done.exit_code, done.stderr) == (0, "")
    assert written(directory) == FILES
    lines = done.stdout.splitlines()
    assert sorted(line.split()[1] for line in lines[:-1]) == FILES
    assert lines[-1] == 'next: pytest tests/test_perf.py -m "perf and cpu" --save-baseline'


def test_the_suite_is_valid_and_its_editor_finds_the_schema(directory):
    init()

    suite = directory / "bench_configs" / "example.yaml"
    cases = load_cases([suite], Overrides(), [str(directory)])
    assert [(case.tier, case.world_size) for case in cases] == [("cpu", 1), ("cpu", 2)]
    name = suite.read_text("utf-8").splitlines()[0].partition("$schema=")[2]
    assert json.loads((suite.parent / name).read_text("utf-8")) == json.loads(
        json.dumps(suite_schema())
    )


def test_its_tests_assert_every_metric(directory):
    """A metric that no test asserts could regress without any red test."""
    init()

    text = (directory / "tests" / "test_perf.py").read_text("utf-8")
    marked = re.findall(r'ddp_metric\("(\w+)"\)', text)
    assert sorted(marked) == sorted([*EXACT, *(metric.name for metric in METRICS), "nodes"])


def test_another_directory_is_made_and_entered_by_the_next_command(directory):
    done = init("new project")

    assert done.exit_code == 0
    assert written(directory / "new project") == FILES
    assert done.stdout.splitlines()[-1].startswith("next: cd 'new project' && pytest tests/")


@pytest.mark.parametrize("existing", ["tests/test_perf.py", "perf_workload.py"])
def test_an_existing_file_is_named_and_nothing_is_written(directory, existing):
    (directory / existing).parent.mkdir(exist_ok=True)
    (directory / existing).write_text("mine")

    done = init()

    assert done.exit_code == 4
    assert f" has {existing} already, so nothing was written; rename or remove " in done.stderr
    assert written(directory) == [existing]
    assert (directory / existing).read_text() == "mine"


def test_a_suite_that_is_there_takes_the_place_of_the_example(directory):
    """As after ``ddp-perf try train.py --write bench_configs/train.yaml``."""
    (directory / "bench_configs").mkdir()
    (directory / "bench_configs" / "train.yaml").write_text("mine")

    done = init()

    assert done.exit_code == 0
    example = {"bench_configs/example.yaml", "perf_workload.py"}
    assert written(directory) == sorted({*FILES, "bench_configs/train.yaml"} - example)


def test_a_second_run_changes_nothing(directory):
    init()
    (directory / "perf_workload.py").write_text("mine")

    assert init().exit_code == 4
    assert (directory / "perf_workload.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("pytest.ini", "[pytest]\n", "addopts = -m 'not perf and not work'"),
        (
            "pyproject.toml",
            "[tool.pytest.ini_options]\n",
            'addopts = ["-m", "not perf and not work"]',
        ),
        ("pyproject.toml", "[tool.pytest]\n", 'addopts = ["-m", "not perf and not work"]'),
        ("tox.ini", "[tox]\n[pytest]\n", "addopts = -m 'not perf and not work'"),
        ("setup.cfg", "[tool:pytest]\n", "addopts = -m 'not perf and not work'"),
    ],
)
def test_settings_of_pytest_are_left_as_they_are_and_the_line_is_printed(
    directory, name, text, line
):
    (directory / name).write_text(text)

    done = init()

    assert done.exit_code == 0
    assert written(directory) == sorted({*FILES, name} - ({"pytest.ini"} - {name}))
    assert (directory / name).read_text() == text
    assert f"{name} has pytest's settings, and was left as it is" in done.stdout
    assert done.stdout.splitlines()[-2] == f"    {line}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", '[pytest]\naddopts = -q -m "not perf and not work"\n'),
        (
            "pytest.ini",
            "[pytest]\naddopts =\n    -q\n    -m 'not perf and not slow and not work'\n",
        ),
        (
            "pyproject.toml",
            '[tool.pytest]\naddopts = [\n  "-m",\n  "not slow and not perf and not work",\n]\n',
        ),
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\naddopts = "-q -m \\"not perf and not work\\""\n',
        ),
    ],
)
def test_settings_that_deselect_already_get_no_advice(directory, name, text):
    (directory / name).write_text(text)

    assert "addopts" not in init().stdout


@pytest.mark.parametrize(
    ("name", "text", "what", "line"),
    [
        ("pytest.ini", "addopts = -q\n", "Add this to addopts", "-m 'not perf and not work'"),
        (
            "pyproject.toml",
            'addopts = ["-q"]\n',
            "Add this to addopts",
            '"-m", "not perf and not work"',
        ),
        ("pyproject.toml", 'addopts = "-q"\n', "Add this to addopts", "-m 'not perf and not work'"),
        (
            "pytest.ini",
            "addopts = -q -m 'not slow'\n",
            "Let the expression of -m in addopts be this",
            "(…) and not perf and not work",
        ),
        (
            "pytest.ini",
            "addopts = -m 'not perf'\n",
            "Let the expression of -m in addopts be this",
            "(…) and not work",
        ),
        (
            "pytest.ini",
            "markers =\n    draft: not performed each night\n# not perf\n",
            "Add this line to them",
            "addopts = -m 'not perf and not work'",
        ),
    ],
)
def test_the_advice_adds_to_the_options_that_a_project_has(directory, name, text, what, line):
    section = "[pytest]" if name == "pytest.ini" else "[tool.pytest.ini_options]"
    (directory / name).write_text(f"{section}\n{text}")

    *_, reason, shown, _ = init().stdout.splitlines()
    assert reason == f"{what}, or a bare pytest measures and counts, too:"
    assert shown == f"    {line}"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("pytest.ini", "[pytest]\n", "    ddp_settle = 3m"),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", '    ddp_settle = "3m"'),
        ("pytest.ini", "[pytest]\nddp_machine = pool\n", None),
    ],
)
def test_the_advice_has_a_key_by_which_the_plugin_knows_its_project(directory, name, text, line):
    (directory / name).write_text(text)

    lines = init().stdout.splitlines()

    reason = "Add this line to them, or pytest leaves the suite out:"
    assert (reason in lines) == (line in lines) == (line is not None)


@pytest.mark.parametrize("name", ["pyproject.toml", "tox.ini", "setup.cfg"])
@pytest.mark.parametrize("section", ["project", "tool.pytest-watcher", "tool.pytest_env"])
def test_a_file_without_settings_of_pytest_does_not_matter(directory, name, section):
    (directory / name).write_text(f"[{section}]\nname = 'pytest'\n")

    init()

    assert (directory / "pytest.ini").exists()


def test_a_directory_that_cannot_be_written_is_one_line(directory):
    Path("file").touch()

    done = init("file")

    assert done.exit_code == 4
    assert done.stderr.count("\n") == 1
    assert "cannot be written: " in done.stderr


def test_the_page_shows_what_is_written(directory):
    init()

    page = (REPOSITORY / "docs" / "own-workload.md").read_text("utf-8")
    assert f"\n{(directory / 'pytest.ini').read_text('utf-8')}```\n" in page
