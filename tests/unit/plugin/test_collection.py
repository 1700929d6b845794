"""An item is collected for each case and metric that is gated."""

from __future__ import annotations

import pytest

from tests.projects import TINY

ONE, TWO = "mlp-none-fp32-ws1-b16", "mlp-ddp-fp32-ws2-b16"
ENERGY = "tolerances: {energy: 0.1}\n"


def collected(project, test, *, tier="cpu", more=""):
    """Return the cases of the suite for which this test has an item."""
    project.suite("tiny", TINY.replace("tier: cpu", f"tier: {tier}") + more)
    lines = str(project.run("-m", tier, "--collect-only", "-q").stdout).splitlines()
    items = [line.rpartition("::")[2] for line in lines if "::" in line]
    return [item[len(test) + 1 : -1] for item in items if item.startswith(f"{test}[")]


@pytest.mark.parametrize(
    ("test", "cases"),
    [
        ("test_step_time", [ONE, TWO]),
        ("test_tail", [ONE, TWO]),
        ("test_cpu_time", [ONE, TWO]),
        ("test_peak_memory", [ONE, TWO]),
        ("test_structure", [ONE, TWO]),
        ("test_loss", [ONE, TWO]),
        ("test_efficiency", [TWO]),
        ("test_energy", []),
    ],
)
def test_a_cpu_case_has_an_item_for_each_of_its_metrics(project, test, cases):
    assert collected(project, test) == cases


def test_cpu_time_has_no_item_on_the_gpu_tier(project):
    assert collected(project, "test_cpu_time", tier="gpu", more=ENERGY) == []
    assert collected(project, "test_step_time", tier="gpu", more=ENERGY) == [ONE, TWO]
    assert collected(project, "test_energy", tier="gpu", more=ENERGY) == [ONE, TWO]


def test_cpu_time_without_a_tolerance_has_no_item(project):
    assert collected(project, "test_cpu_time", more="tolerances: {cpu_time: null}\n") == []


def test_a_case_that_is_not_judged_by_its_loss_has_no_item(project):
    assert collected(project, "test_loss", more="tolerances: {loss: null}\n") == []
    assert collected(project, "test_loss", more="tolerances: {loss: 0.1}\n") == [ONE, TWO]


def test_the_number_of_collected_items_is_that_of_the_outcomes(project):
    result = project.run()  # test_energy has no case

    result.stdout.fnmatch_lines(["collected 13 items"])
    assert sum(result.parseoutcomes().values()) == 13


@pytest.mark.parametrize("expression", ["perf", "perf and cpu"])
def test_a_test_without_a_case_that_is_named_is_skipped_with_the_reason(project, expression):
    energy = "tests/test_perf.py::test_energy"

    alone = project.run("-m", expression, "-rs", energy)
    assert alone.ret == pytest.ExitCode.OK
    alone.assert_outcomes(skipped=1)
    assert "no suite has a case that is gated by its energy" in str(alone.stdout)

    beside = project.run("-m", expression, energy, "tests/test_perf.py::test_structure")
    assert sum(beside.parseoutcomes().values()) == 3


@pytest.mark.parametrize(
    ("expression", "hinted"),
    [
        ("perf", True),
        ("cpu and perf", True),
        ("not perf", False),
        ("slow", False),
        ("", False),
    ],
)
def test_performance_tests_without_any_suite_get_the_command_that_writes_one(
    pytester, expression, hinted
):
    done = pytester.runpytest("-p", "ddp_perf.plugin", "-m", expression)

    assert done.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    hint = f"ddp: there is no suite file in {pytester.path / 'bench_configs'}; `ddp-perf init`"
    assert (hint in str(done.stdout)) is hinted


def test_a_project_without_a_suite_file_is_refused_with_the_command_that_writes_one(project):
    (project.path / "bench_configs" / "tiny.yaml").unlink()

    result = project.run()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"*there is no suite file in {project.path / 'bench_configs'}: *run ddp-perf init, *"]
    )


def test_without_a_suite_file_the_other_tests_of_a_project_run(project):
    (project.path / "bench_configs" / "tiny.yaml").unlink()
    (project.path / "test_own.py").write_text(
        "import pytest\n\n\n@pytest.mark.cpu\ndef test_own(): ...\n"
    )

    project.run("test_own.py").assert_outcomes(passed=1)


def test_an_unknown_metric_of_a_marker_is_refused_with_the_nearest_one(project):
    (project.path / "test_own.py").write_text(
        "import pytest\n\n\n"
        "@pytest.mark.ddp_metric('step_tme')\n"
        "def test_own(ddp_measured, assert_verdict): assert_verdict()\n"
    )

    result = project.run("test_own.py")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*ddp_metric: 'step_tme' is not one of structure, loss, *; did you mean 'step_time'*"]
    )
    assert "Traceback" not in str(result.stdout)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["tests", "-m", "not perf"],
            'ddp: 13 performance tests deselected; to measure: -m "perf and cpu"',
        ),
        (
            ["tests", "-m", "perf and gpu"],
            'ddp: 13 performance tests deselected; to measure: -m "perf and cpu"',
        ),
        (
            ["test_own.py", "-m", "perf and cpu"],
            "ddp: 1 performance test deselected; to measure: -m perf",
        ),
    ],
)
def test_a_selection_that_leaves_no_test_names_the_one_that_measures(project, arguments, line):
    (project.path / "test_own.py").write_text(
        "import pytest\n\n\n@pytest.mark.perf\ndef test_own(ddp_measure): ...\n"
    )

    result = project.run(*arguments)

    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines([line])


def test_a_selection_that_leaves_a_test_says_nothing_about_the_others(project):
    (project.path / "test_own.py").write_text("def test_own(): ...\n")

    assert "deselected:" not in str(project.run("-m", "not perf").stdout)
