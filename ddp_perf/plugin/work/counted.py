"""A counted case as a test uses it: its counts, and the assertion of the verdict on them."""

from __future__ import annotations

from typing import NoReturn

import msgspec
import pytest

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import StepWork
from ddp_perf.errors import DdpPerfError
from ddp_perf.plugin.arrived import COUNTED
from ddp_perf.plugin.exit_code import fail_undecided
from ddp_perf.plugin.session import DdpSession
from ddp_perf.report.terminal.text import describe_launch_failure
from ddp_perf.report.work_rows import step_figures
from ddp_perf.system.capacity import missing_package
from ddp_perf.work.text import verdict_lines
from ddp_perf.work.values import CountedCase, WorkVerdict

_MOST_CHANGES = 12  # that a message shows; the report has all of them
_FRAMES = "(These are the frames of your code.)"
_GREEN = (Outcome.PASS, Outcome.IMPROVEMENT)


class CountedStep:
    """The step of a case, which is counted when a test first asks for its counts."""

    def __init__(self, case: Case, *, ddp: DdpSession, node: pytest.Item) -> None:
        self.case = case
        self._ddp = ddp
        self._node = node

    @property
    def work(self) -> StepWork:
        """The counts of rank 0. The test fails if the step cannot be counted."""
        work = self._counted().work
        assert work is not None  # `_counted` has failed the test otherwise
        return work

    @property
    def verdict(self) -> WorkVerdict:
        """The verdict on the counts, by those that are stored for this version of torch."""
        verdict = self._counted().verdict
        assert verdict is not None
        return verdict

    def assert_verdict(self) -> None:
        """Fail, skip or pass the test, by the verdict on the counts."""
        counted = self._counted()
        outcome = self.verdict.outcome
        if outcome in _GREEN:
            return
        first, *others = verdict_lines(self.verdict, _MOST_CHANGES)
        lines = [f"{self.case.id}: {first}", *others]
        if counted.saved is not None:
            pytest.skip("\n".join([*lines, f"stored in {counted.saved}"]))
        text = "\n".join(lines)
        if outcome is Outcome.REGRESSION:
            pytest.fail(text, pytrace=False)
        self._skip(text)

    def _counted(self) -> CountedCase:
        """Return the counted case, and note it in the test's report.

        The test fails without a traceback if the step cannot be counted.
        """
        missing = missing_package(self.case)
        if missing is not None:
            self._skip(missing)
        found, problem = None, ""
        try:
            found = self._ddp.work.count(self.case)
        except DdpPerfError as error:
            problem = str(error)
        if found is None:  # outside the handler, or the traceback would be printed as well
            fail_undecided(problem)
        if isinstance(found, LaunchFailure) and found.kind == "needs_gpu":
            self._skip(found.detail)
        if isinstance(found, LaunchFailure):
            counted = CountedCase(
                case=self.case, failure=describe_launch_failure(found, remark=_FRAMES)
            )
        else:
            counted = found
        if COUNTED not in self._node.stash and counted.work is not None:
            figures = msgspec.structs.asdict(step_figures(counted.work))
            self._node.user_properties.extend(figures.items())
        self._node.stash[COUNTED] = counted
        if counted.failure is not None:
            pytest.fail(counted.failure, pytrace=False)
        return counted

    def _skip(self, why: str) -> NoReturn:
        """Skip the test: nothing is compared. A strict session leaves it undecided."""
        if self._ddp.options.strict:
            fail_undecided(why)
        pytest.skip(why)
