"""The directories of the suite's own tests that are imported for an expression of -m."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.projects import REPOSITORY

ALL = {"perf", "work", "correctness", "system", "unit"}
IMPORTED = """
import sys, pytest
code = pytest.main(sys.argv[1:])
print(*sorted(name for name in sys.modules if name.startswith("tests.") and "test_" in name))
sys.exit(code)
"""


@pytest.fixture
def collected(pytester, monkeypatch):
    """``collected(*arguments)`` names the directories whose only test file pytest imports."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    shutil.copy(REPOSITORY / "conftest.py", pytester.path)
    markers = {
        "perf": "pytestmark = [pytest.mark.perf, pytest.mark.cpu]",
        "work": "pytestmark = [pytest.mark.work, pytest.mark.gpu]",
    }
    for name in ALL:
        path = pytester.path / "tests" / name / f"test_{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(
            f"import pytest\n{markers.get(name, '')}\ndef test_nothing():\n    pass\n",
            encoding="utf-8",
        )

    def run(*arguments):
        items, recorder = pytester.inline_genitems("--import-mode=importlib", *arguments)
        modules = recorder.getcalls("pytest_make_collect_report")
        imported = {
            call.collector.path.parent.name
            for call in modules
            if isinstance(call.collector, pytest.Module)
        }
        return imported, {item.path.parent.name for item in items}

    return run


@pytest.mark.parametrize(
    ("expression", "imported"),
    [
        ("perf and cpu", {"perf"}),
        ("perf", {"perf"}),
        ("work", {"work"}),
        ("perf and gpu", {"perf"}),
        ("gpu", {"perf", "correctness"}),
        ("gpu and not perf", {"correctness"}),
        ("not perf", ALL - {"perf"}),
        ("not perf and not work", ALL - {"perf", "work"}),
        ("", ALL),
        ("skipif or perf", ALL),
        ("perf and skipif", {"perf"}),
    ],
)
def test_only_directories_that_may_hold_a_selected_test_are_imported(
    collected, expression, imported
):
    assert collected("-m", expression)[0] == imported


@pytest.mark.parametrize(
    "named", ["tests/unit", "tests/unit/test_unit.py", "tests/unit/test_unit.py::test_nothing"]
)
def test_files_named_on_the_command_line_are_imported(collected, named):
    assert collected("-m", "perf", named)[0] == {"unit"}
    assert collected("-m", "not perf", named)[1] == {"unit"}


def test_an_expression_that_cannot_be_read_is_a_usage_error(pytester, collected):
    done = pytester.runpytest("-m", "perf and")

    assert done.ret == pytest.ExitCode.USAGE_ERROR


def test_a_marker_that_its_directory_does_not_state_is_a_usage_error(pytester, collected):
    path = pytester.path / "tests" / "unit" / "test_unit.py"
    path.write_text(
        "import pytest\n@pytest.mark.gpu\ndef test_nothing():\n    pass\n", encoding="utf-8"
    )

    done = pytester.runpytest()

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(
        ["*test_unit.py::test_nothing: has the markers [[]'gpu'[]], which MARKERS of conftest.py*"]
    )


def test_selecting_performance_cases_imports_their_tests_and_no_others(monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # or it would take itself for one
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, "--collect-only", "-q", "-m", "perf and cpu"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )

    assert done.returncode == 0, done.stderr
    imported = done.stdout.splitlines()[-1].split()
    assert "tests.perf.test_perf" in imported
    assert {name.rpartition(".")[0] for name in imported} == {"tests.perf"}
