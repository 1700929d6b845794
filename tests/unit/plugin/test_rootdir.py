"""A path that pytest mistakes for a test's is refused, with the form that it does not mistake."""

from __future__ import annotations

import pytest

from tests.projects import TINY

REPORT, RESULTS, SUITE = "outside/report", "outside/x.json", "outside/b.yaml"


@pytest.fixture
def collect(pytester, monkeypatch):
    """``collect("--ddp-json=x.json", …)`` collects a project beside a directory ``outside``."""
    for directory in ("project/tests", "project/bench_configs", REPORT):
        (pytester.path / directory).mkdir(parents=True)
    (pytester.path / SUITE).write_text(TINY)
    (pytester.path / RESULTS).write_text("")
    project = pytester.path / "project"
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "tests" / "test_one.py").write_text("def test_one(): pass\n")
    monkeypatch.setenv("PYTEST_PLUGINS", "ddp_perf.plugin")  # as an installed plugin is loaded
    monkeypatch.chdir(project)
    # A process of its own: pytester's runs in this one with other arguments than a shell's.
    return lambda *arguments: pytester.runpytest_subprocess("--collect-only", "-q", *arguments)


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ("--ddp-report", REPORT),
        pytest.param("--ddp-json", RESULTS, marks=pytest.mark.slow),
        pytest.param("--ddp-config", SUITE, marks=pytest.mark.slow),
    ],
)
def test_a_path_that_misleads_pytest_is_refused_with_the_form_that_does_not(collect, option, path):
    refused = collect(option, f"../{path}")

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = filter(None, refused.stderr.lines)
    assert line.startswith(f"ERROR: {option} ../{path}: pytest took the path after the space")
    assert line.endswith(f"write {option}=../{path}")
    assert collect(f"{option}=../{path}").ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--ddp-json", "../outside/new.json"), id="a new file"),
        pytest.param(("--ddp-report", "tests"), id="inside", marks=pytest.mark.slow),
        pytest.param(
            ("tests", "--ddp-report", "../outside/report"),
            id="beside a test's path",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("--ddp-report", "../outside/report", "-c", "pytest.ini"),
            id="named configuration",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("--ddp-report", "../outside/report", "--rootdir=."),
            id="named root",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_path_that_does_not_mislead_pytest_is_not_refused(collect, arguments):
    assert collect(*arguments).ret == pytest.ExitCode.OK


def test_a_path_beside_the_directory_where_pytest_was_started_may_be_in_the_project(
    collect, monkeypatch
):
    monkeypatch.chdir("tests")

    assert collect("--ddp-report", "../bench_configs").ret == pytest.ExitCode.OK
