"""The project that ``ddp-perf init`` writes: green at once, and red after a slow-down."""

from __future__ import annotations

import shutil

import pytest

from ddp_perf.cli.init import init


@pytest.fixture
def example(project):
    shutil.rmtree(project.path / "tests")
    shutil.rmtree(project.path / "bench_configs")
    init(project.path)
    (project.path / "tests" / "test_work.py").unlink()  # tests/system/test_init.py runs it
    return project


def test_the_first_session_is_green_and_stores_and_the_second_one_judges(example):
    first = example.run("--save-baseline")
    assert first.ret == pytest.ExitCode.OK
    first.assert_outcomes(skipped=13)  # all metrics of two cases, and the efficiency of one

    second = example.run("-rs")
    assert second.ret == pytest.ExitCode.OK
    assert "NO_BASELINE" not in str(second.stdout)


def test_a_slow_down_fails_the_test_of_the_step_time(example):
    example.run("--save-baseline")
    example.answer = example.steps_of(0.030, 0.036)

    slowed = example.run("-rf")

    assert slowed.ret == pytest.ExitCode.TESTS_FAILED
    slowed.stdout.fnmatch_lines(["FAILED *::test_step_time*"])
