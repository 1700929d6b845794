"""The line on the absolute targets of a suite: how many are met, missed and undecided."""

from __future__ import annotations

from collections import Counter

from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import counted
from ddp_perf.session.result import SuiteResult

_NAMES = {
    Outcome.MEETS_TARGET: "met",
    Outcome.MISSES_TARGET: "missed",
    Outcome.UNDECIDED: "undecided",
    Outcome.INVALID: "invalid",
}


def target_lines(result: SuiteResult) -> list[str]:
    """Return a line with the number of each outcome, or none if no test asserts a target."""
    found = [finding for finding in result.asserted_findings() if finding.target is not None]
    if not found:
        return []
    count = Counter(finding.verdict.outcome for finding in found)
    numbers = [f"{count[outcome]} {name}" for outcome, name in _NAMES.items() if count[outcome]]
    titles = dict.fromkeys(metric_title(finding.metric) for finding in found)
    return [f"{counted(len(found), 'target')}: {', '.join(numbers)} ({', '.join(titles)})"]
