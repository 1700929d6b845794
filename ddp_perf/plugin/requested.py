"""The tests of a session: the cases that they request, and what their reports have shown."""

from __future__ import annotations

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.render.units import without_figures
from ddp_perf.session.result import SuiteResult


class RequestedCases:
    """The cases that tests request, with the metrics whose verdicts they assert."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, str], set[str]] = {}  # by suite and id of the case
        self._shown: set[tuple[tuple[str, str], str]] = set()  # of which case what is in a report
        self._reasons: set[str] = set()  # of verdicts, without their figures, that are in a report

    def note(self, case: Case, metric: str | None = None) -> None:
        """Note that a test requests the case, and asserts its verdict on ``metric``, if any."""
        metrics = self._metrics.setdefault(case.key, set())
        if metric is not None:
            metrics.add(metric)

    def asserts(self, case: Case, metric: str) -> bool:
        """Return whether a test asserts the verdict on a metric of the case."""
        return metric in self._metrics.get(case.key, ())

    def of_suite(self, suite: str) -> frozenset[str]:
        """Return the ids of the suite's cases that tests request."""
        return frozenset(case_id for of, case_id in self._metrics if of == suite)

    def in_result(self, result: SuiteResult) -> SuiteResult:
        """Return the result with the metrics that tests assert of each measured case."""
        asserted = {
            case_id: tuple(sorted(self._metrics[result.suite, case_id]))
            for case_id in result.measurements
            if (result.suite, case_id) in self._metrics
        }
        return msgspec.structs.replace(result, asserted=asserted)

    def is_first(self, case: Case, what: str) -> bool:
        """Return True once for each case and what a test's report shows of it."""
        is_new = (case.key, what) not in self._shown
        self._shown.add((case.key, what))
        return is_new

    def is_first_reason(self, reason: str) -> bool:
        """Return True once for each reason of tests: another case's has only other figures."""
        key = without_figures(reason)
        is_new = key not in self._reasons
        self._reasons.add(key)
        return is_new
