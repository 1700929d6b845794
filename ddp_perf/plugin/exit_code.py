"""The exit code of a session, and results that arrive from xdist's workers."""

from __future__ import annotations

from collections.abc import Generator
from typing import NoReturn

import msgspec
import pytest
from _pytest.outcomes import Failed  # pytest.fail.Exception has no type that can be a base

from ddp_perf.errors import ExitCode
from ddp_perf.plugin.session import SESSION
from ddp_perf.work.values import CountedCase

# The exit code of a strict session: why it is not green. Without --ddp-strict nothing changes.


_STOPPED = pytest.StashKey[bool]()  # by pytest itself


class Undecided(Failed):
    """A test failed since nothing was measured or decided, not since training got worse."""

    __module__ = "builtins"  # pytest's summary has the name alone, as that of its own exceptions


def fail_undecided(text: str) -> NoReturn:
    """Fail the test, and leave open whether training got worse."""
    raise Undecided(text, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Run the audit after the last test, and note if pytest itself ended the tests before it."""
    try:
        result = yield
    except pytest.Session.Interrupted:
        session.stash[_STOPPED] = True
        raise
    if (ddp := session.config.stash.get(SESSION, None)) is not None:
        ddp.audit()
    return result


def set_exit_code(session: pytest.Session, *, undecided: int) -> None:
    """Set the exit code of a session that has ended; ``--ddp-strict`` decides which codes.

    ``undecided`` is the number of failures that leave open whether training got worse.
    """
    ddp = session.config.stash.get(SESSION, None)
    errors = ddp.errors if ddp is not None else []
    if not session.config.getoption("ddp_strict"):
        if errors and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif session.exitstatus == pytest.ExitCode.INTERRUPTED:
        session.exitstatus = _code_of_the_end(session, undecided)
    elif session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        session.exitstatus = _code_of_the_tests(session, errors, undecided)


def _code_of_the_end(session: pytest.Session, undecided: int) -> ExitCode:
    """Return the code of a session that did not run all of its tests."""
    ddp = session.config.stash.get(SESSION, None)
    if session.shouldstop:  # by a failure, as --stepwise does
        return _code_of_the_tests(session, ddp.errors if ddp is not None else [], undecided)
    if session.stash.get(_STOPPED, False):  # by a file that cannot be imported
        return ExitCode.USAGE
    return ExitCode.TERMINATED if ddp is not None and ddp.end.by_sigterm else ExitCode.INTERRUPTED


def _code_of_the_tests(session: pytest.Session, errors: list[str], undecided: int) -> ExitCode:
    """Return red before an output that was not written, and that before undecided."""
    if session.testsfailed > undecided:
        return ExitCode.RED
    if errors:
        return ExitCode.ERROR
    return ExitCode.UNDECIDED if undecided else ExitCode.GREEN


# The reports of tests as they arrive: from this process, or from the workers of pytest-xdist.
#
# What a worker found is in its reports alone, as attributes that pytest-xdist carries over.


COUNTED = pytest.StashKey[CountedCase]()  # of an item


class Arrived:
    """The findings in the reports of a session, beside their outcomes."""

    def __init__(self) -> None:
        self.undecided = 0  # failures that leave open whether training got worse
        self.counted: dict[tuple[str, str], CountedCase] = {}  # by suite and case id

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if getattr(report, "ddp_undecided", False):
            self.undecided += 1
        if (text := getattr(report, "ddp_counted", None)) is not None:
            counted = msgspec.json.decode(text, type=CountedCase)
            self.counted[counted.case.key] = counted


ARRIVED = pytest.StashKey[Arrived]()  # of the config


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None and call.excinfo.errisinstance(Undecided):
        vars(report)["ddp_undecided"] = True
    counted = item.stash.get(COUNTED, None)
    if counted is not None and report.when == "call":
        vars(report)["ddp_counted"] = msgspec.json.encode(counted).decode()
    return report
