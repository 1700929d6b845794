"""The plugin in a project that does not use the suite: as if it were not installed."""

from __future__ import annotations

import json

import pytest

REMEDY = "*ddp_configs = bench_configs*"
# What may collide: a directory of this name, a marker, and options.
CONFTEST = """
import json, pathlib, sys
import pytest

def pytest_addoption(parser):
    parser.addoption("--save-baseline", action="store_true")
    parser.addoption("--reason")

@pytest.fixture
def ddp_case():
    return "a case of their own"

def pytest_sessionfinish(session):
    loaded = [name for name in sys.modules if name.startswith("ddp_perf")]
    path = pathlib.Path(f"loaded-{getattr(session.config, 'workerinput', {}).get('workerid')}.json")
    path.write_text(json.dumps(loaded))
"""
TESTS = """
import pytest

@pytest.mark.gpu
def test_gpu(pytestconfig):
    assert pytestconfig.getoption("reason") == "theirs"

def test_other(ddp_case):
    assert ddp_case == "a case of their own"
"""


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setenv("PYTEST_PLUGINS", "ddp_perf.plugin")  # as an installed plugin is loaded
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


@pytest.fixture
def foreign(pytester):
    pytester.makeini("[pytest]\nmarkers =\n    gpu: what needs our GPU\n")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    (pytester.path / "bench_configs").mkdir()
    (pytester.path / "bench_configs" / "broken.yaml").write_text("benches: [half, writ")
    return pytester


def test_nothing_is_read_imported_or_registered(foreign):
    done = foreign.runpytest_subprocess(
        *("-n", "2", "-W", "error", "-p", "no:cacheprovider", "-p", "no:benchmark"),
        *("--strict-markers", "--reason=theirs", "--save-baseline"),
    )

    done.assert_outcomes(passed=2)
    loaded = {path.name: json.loads(path.read_text()) for path in foreign.path.glob("loaded-*")}
    assert loaded.keys() == {"loaded-None.json", "loaded-gw0.json", "loaded-gw1.json"}
    assert all(names == ["ddp_perf", "ddp_perf.plugin"] for names in loaded.values())
    assert "ddp:" not in done.stdout.str()


def test_its_marker_selects_its_tests(foreign):
    done = foreign.runpytest("-m", "gpu", "--reason=theirs")

    done.assert_outcomes(passed=1, deselected=1)


def test_its_list_of_markers_is_its_own(foreign):
    text = foreign.runpytest("--markers").stdout.str()

    assert "pytest.mark.gpu: what needs our GPU" in text
    assert "ddp" not in text
    assert "pytest.mark.perf" not in text


def test_its_help_explains_the_options_of_the_suite_beside_its_own(foreign):
    text = foreign.runpytest("--help").stdout.str()

    assert "--ddp-config=FILE" in text
    assert "--reason=REASON" in text


@pytest.mark.parametrize("fixture", ["ddp_case", "ddp_measured", "ddp_counted", "ddp_measure"])
def test_a_test_that_asks_for_the_suite_is_told_how_to_use_it(pytester, fixture):
    pytester.makepyfile(f"def test_of_mine({fixture}): pass")

    done = pytester.runpytest()

    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([f"*::test_of_mine asks for {fixture}: {REMEDY}"])


def test_an_argument_of_that_name_is_theirs(pytester):
    pytester.makepyfile(
        "import pytest\n@pytest.mark.parametrize('ddp_case', [1, 2])\ndef test_it(ddp_case): pass\n"
    )

    pytester.runpytest().assert_outcomes(passed=2)


def test_saving_a_baseline_is_told_how_to_use_the_suite(pytester):
    done = pytester.runpytest("--save-baseline")

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*unrecognized arguments: --save-baseline*", REMEDY])


@pytest.mark.parametrize(
    ("ini", "arguments", "variable"),
    [
        ("ddp_configs = bench_configs", (), ""),
        ("ddp_settle = 3m", (), ""),
        ("addopts = -p ddp_perf.plugin", (), ""),
        ("addopts = --ddp-steps=5", (), ""),
        ("", ("--ddp-steps", "5"), ""),
        ("", ("-o", "ddp_configs=elsewhere"), ""),
        ("", ("-oddp_configs=elsewhere",), ""),
        ("", ("-p", "ddp_perf.plugin"), ""),
        ("", ("-pddp_perf.plugin",), ""),
        ("", (), "--ddp-steps=5"),
        ("", (), "'--ddp-machine=pool'"),
        ("", ("@options.txt",), ""),
    ],
)
def test_a_project_or_a_command_that_names_the_suite_has_all_of_it(
    pytester, monkeypatch, ini, arguments, variable
):
    monkeypatch.setenv("PYTEST_ADDOPTS", variable)
    pytester.makeini(f"[pytest]\n{ini}\n")
    (pytester.path / "options.txt").write_text("--ddp-steps=5\n")

    config = pytester.parseconfigure(*arguments)

    assert config.getoption("save_baseline") is None
    assert any(line.startswith("perf:") for line in config.getini("markers"))


@pytest.mark.parametrize(
    "arguments", [("ddp_tests/test_x.py",), ("-k", "ddp_"), ("-o", "junit_suite_name=ddp_x")]
)
def test_a_name_that_begins_alike_is_not_the_suite(pytester, arguments):
    (pytester.path / "ddp_tests").mkdir()
    (pytester.path / "ddp_tests" / "test_x.py").touch()

    config = pytester.parseconfigure(*arguments)

    assert not hasattr(config.option, "save_baseline")
