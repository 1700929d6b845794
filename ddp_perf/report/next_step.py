"""The one command that helps after a session."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ddp_perf.report.rows import report_summary
from ddp_perf.report.verdicts import Status
from ddp_perf.session.result import SuiteResult


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """A shell command, and why it helps."""

    why: str  # a sentence
    command: str


def next_step(suites: Sequence[SuiteResult]) -> NextStep | None:
    """Return the command that measures the first red case again, or None without one."""
    red = report_summary(suites, complete=True).of(Status.RED)
    commands = {
        (suite.suite, case): text for suite in suites for case, text in suite.commands.items()
    }
    for row in red:
        if (row.suite, row.case) in commands:
            why = f"Measure {row.case} again, to see whether the verdict repeats."
            return NextStep(why=why, command=commands[row.suite, row.case])
    return None
