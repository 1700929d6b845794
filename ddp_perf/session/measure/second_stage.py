"""The second stage within the measurement of a suite: what it decides is noted, and stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import SuiteResult

Note = Callable[[SuiteResult], None]
# Decides what is undecided; see `ddp_perf.settle`. Its last argument receives partial results.
Settle = Callable[[SuiteResult, Baseline, Note], SuiteResult]
_GOOD = (Outcome.PASS, Outcome.IMPROVEMENT)


def in_second_stage(
    result: SuiteResult,
    baseline: Baseline,
    settle: Settle | None,
    on_partial: Note,
    on_judged: Note,
    keep: Callable[[SuiteResult], SuiteResult],
) -> SuiteResult:
    """Return the settled result, after ``on_judged`` received it.

    If an interrupt ends it, the session is judged and kept by the verdicts so far.
    """
    newest = result

    def note(partial: SuiteResult) -> None:
        nonlocal newest
        newest = partial
        on_partial(partial)

    try:
        newest = result if settle is None else settle(result, baseline, note)
    except BaseException:
        on_judged(newest)
        with contextlib.suppress(Exception):  # what ends the session is raised, and not this
            on_partial(keep(newest))
        raise
    on_judged(newest)
    return newest


def store_improvements(result: SuiteResult, save: Callable[..., SuiteResult]) -> SuiteResult:
    """Make the settled improvements the levels of their cases, so that losing one is red.

    ``save`` takes the case ids, and the mode and reason of what is stored.
    """
    for case_id, reason in _improvements(result):
        result = save(result, [case_id], mode="accept", reason=reason)
    return result


def _improvements(result: SuiteResult) -> Iterator[tuple[str, str]]:
    """Yield each case whose step is settled to be faster, while nothing of it is worse."""
    for case_id, settled in result.settled.items():
        own = [found for found in result.findings if found.case_id == case_id]
        step = result.finding(case_id, STEP_TIME.name)
        if not settled.pairs or step is None or step.verdict.outcome is not Outcome.IMPROVEMENT:
            continue
        if all(found.verdict.outcome in _GOOD for found in own if found.target is None):
            yield case_id, f"a settled improvement: {step.verdict.reason}"
