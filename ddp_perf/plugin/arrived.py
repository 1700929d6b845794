"""The reports of tests as they arrive: from this process, or from the workers of pytest-xdist.

What a worker found is in its reports alone, as attributes that pytest-xdist carries over.
"""

from __future__ import annotations

from collections.abc import Generator

import msgspec
import pytest

from ddp_perf.plugin.exit_code import Undecided
from ddp_perf.work.values import CountedCase

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
