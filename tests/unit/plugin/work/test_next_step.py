"""The one next command after a session of work tests: the most urgent one."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.plugin.terminal import is_red, work_step
from tests.work_reports import make_counted

COMMAND = "pytest -m work -n 2"


def case(outcome, **fields):
    return make_counted(outcome=outcome, **fields)


def failed():
    return make_counted(verdict=None, work=None, failure="ZeroDivisionError")


@pytest.mark.parametrize(
    ("outcome", "options"),
    [
        (Outcome.REGRESSION, '--save-baseline=accept --ddp-reason "…"'),
        (Outcome.UNDECIDED, '--save-baseline=accept --ddp-reason "…"'),
        (Outcome.IMPROVEMENT, '--save-baseline=accept --ddp-reason "…"'),
        (Outcome.INCOMPARABLE, "--save-baseline"),
        (Outcome.NO_BASELINE, "--save-baseline"),
    ],
)
def test_a_verdict_has_the_option_that_settles_it(outcome, options):
    assert work_step([case(outcome)], COMMAND).command == f"{COMMAND} {options}"


def test_what_is_red_comes_first_and_a_failure_before_it():
    cases = [case(Outcome.NO_BASELINE), case(Outcome.REGRESSION), case(Outcome.IMPROVEMENT)]

    assert "intended" in work_step(cases, COMMAND).why
    assert work_step([*cases, failed()], COMMAND).command == COMMAND


def test_what_the_session_was_to_store_is_not_repeated():
    given = f"{COMMAND} --save-baseline=missing"

    assert work_step([failed()], given).command == COMMAND
    assert work_step([case(Outcome.REGRESSION)], given).command.count("--save-baseline") == 1


def test_the_directory_of_what_was_stored_is_to_be_committed():
    files = ("x y/b.json", "x y/a.json", "x y/b.json")
    saved = [case(Outcome.NO_BASELINE, saved=file) for file in files]

    assert work_step(saved, COMMAND).command == "git add 'x y'"
    assert work_step([*saved, case(Outcome.REGRESSION)], COMMAND).command != "git add"


def test_nothing_is_left_after_passes():
    assert work_step([case(Outcome.PASS)], COMMAND) is None
    assert work_step([], COMMAND) is None


def test_only_work_that_is_not_accepted_is_red():
    assert is_red(failed())
    assert is_red(case(Outcome.REGRESSION))
    assert not is_red(case(Outcome.REGRESSION, saved="a.json"))
    assert not is_red(case(Outcome.INCOMPARABLE))
