"""Each row of documents.md: its commands run, or collect tests; or a test shows it.

docs/coming-from.md has what most readers need of it.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.projects import REPOSITORY
from tests.reader_project import make_reader_project, run

PAGE = REPOSITORY / "docs" / "coming-from.md"
CLAIMS = Path(__file__).with_name("documents.md")
PROGRAMS = r"pytest|ddp-perf|\./ci/\w+|torchrun|python -m [\w.]+"
COMMAND = re.compile(rf"`((?:CUDA_VISIBLE_DEVICES=\S+ )?(?:{PROGRAMS})(?: [^`]*)?)`")
EXIT_CODES = {
    "pytest": {0, 1},
    "ddp-perf": {0, 1, 2},
    "./ci/": {0, 1},
    "torchrun": {0},
    "python -m": {0},
}


class Row(NamedTuple):
    """A claim of a document: what it has, what does it here, and what shows that."""

    there: str
    here: str
    shown_by: str

    @property
    def commands(self) -> list[str]:
        return COMMAND.findall(self.here)

    @property
    def gpus(self) -> int | None:
        found = re.fullmatch(r"needs (\d+) GPUs?", self.shown_by)
        return int(found[1]) if found else None


def rows_of(file: Path) -> list[Row]:
    lines = file.read_text(encoding="utf-8").splitlines()
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in lines if line.startswith("| ")]
    return [Row(*row) for row in cells if len(row) == 3 and row[2] != "shown by"]


ROWS = rows_of(CLAIMS)
RUN = [row for row in ROWS if row.shown_by == "run"]
COLLECTED = [row for row in ROWS if row.gpus is not None]
TESTED = [row for row in ROWS if row not in RUN and row not in COLLECTED]


def title(row):
    return row.there[:60]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_reader_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def output_of(project):
    """A function that runs a command once, and returns its output to every row that has it."""

    @functools.cache
    def of(command):
        codes = next(codes for name, codes in EXIT_CODES.items() if command.startswith(name))
        return run(project, command, codes)

    return of


def test_there_are_rows_of_each_kind():
    assert len(RUN) > 20
    assert len(COLLECTED) > 10
    assert len(TESTED) > 20


def test_every_command_of_the_page_is_one_of_a_row():
    cells = re.findall(r"^\| .* \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    commands = COMMAND.findall(" ".join(cells))
    known = " ".join(row.here for row in ROWS)

    assert len(commands) > 20
    assert not [command for command in commands if command not in known]


@pytest.mark.slow
@pytest.mark.parametrize("row", RUN, ids=title)
def test_a_row_of_a_cpu_runs_as_written(output_of, row):
    assert row.commands, f"{row.there}: a row that is run has a command"
    for command in row.commands:
        output = output_of(command)
        assert "nothing was measured" not in output, output


@pytest.mark.slow
@pytest.mark.parametrize("row", COLLECTED, ids=title)
def test_a_row_of_gpus_collects_a_case_of_that_many_ranks(project, row):
    commands = [command for command in row.commands if "pytest" in command]
    assert commands, f"{row.there}: a row that needs GPUs has a pytest command"
    for command in commands:
        listed = run(project, f"{command} --collect-only -q", {0})
        assert max(map(int, re.findall(r"-ws(\d+)-", listed))) >= row.gpus


# ---- rows that name a test ----


def names_in(row):
    return re.findall(r"`(test_\w+)`", row.shown_by)


@pytest.fixture(scope="module")
def functions():
    """The functions that rows name, by name and by file."""
    named = {name for row in TESTED for name in names_in(row)}
    found = {}
    for file in (REPOSITORY / "tests").rglob("test_*.py"):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name in named:
                found.setdefault(node.name, {})[file.relative_to(REPOSITORY)] = node
    return found


@pytest.fixture(scope="module")
def selected(functions):
    """The ids of these tests, without parameters, that pytest selects without a GPU."""
    files = {str(file) for places in functions.values() for file in places}
    without_gpu = ("-m", "not perf and not work and not gpu")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *without_gpu, *sorted(files)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.slow
@pytest.mark.parametrize("row", TESTED, ids=title)
def test_a_row_names_tests_that_this_session_runs(row, functions, selected):
    """Each is collected, asserts something, and is not skipped or expected to fail everywhere.

    They are not run here once more: they are in the same session.
    """
    assert names_in(row), f"{row.there}: run, needs N GPUs, or a test, not {row.shown_by!r}"
    for name in names_in(row):
        places = functions.get(name, {})
        assert places, f"{row.there}: there is no {name}"
        for file, function in places.items():
            where = f"{row.there}: {file}::{name}"
            assert f"{file}::{name}" in selected, f"{where} is not selected without a GPU"
            assert not {"skip", "xfail"} & set(names_of(*function.decorator_list)), where
            assert asserts(function), f"{where} asserts nothing"


def names_of(*nodes):
    """Yield each plain and dotted name's last part in these nodes."""
    for node in itertools.chain.from_iterable(map(ast.walk, nodes)):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


def asserts(function):
    """Return whether a test has an assert statement, or a call that is one."""
    has_statement = any(isinstance(node, ast.Assert) for node in ast.walk(function))
    return has_statement or any("assert" in name or name == "raises" for name in names_of(function))


def test_a_test_that_asserts_nothing_is_seen():
    empty, full = ast.parse("def test_a(): measure()\ndef test_b(): assert_equal(1, 1)").body

    assert (asserts(empty), asserts(full)) == (False, True)
