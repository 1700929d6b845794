"""The cases of a suite that are stored: refusals, those not storable yet, the second stage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.save import Refused, Saving
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError
from ddp_perf.session.measure.rounds import SessionOptions
from ddp_perf.session.result import SuiteResult, keep_results
from ddp_perf.session.store_baseline import new_sessions, reasons_to_leave_out, refusal

# The cases of a judged session that cannot be stored yet, and their further launches.
#
# A disturbed or noisy case gives no baseline. More launches often do: its budget allows for up to
# four times the suite's launches. They are never judged: the looks did not plan them.


_MOST_TIMES = 4  # the launches of the suite
_WITHOUT_LEVEL = (Outcome.NO_BASELINE, Outcome.INCOMPARABLE)


def cases_to_launch_again(
    result: SuiteResult,
    case_ids: Collection[str],
    baseline: Baseline,
    *,
    refused: Collection[str],
    options: SessionOptions,
) -> list[Case]:
    """Return the cases that cannot be stored yet and have the budget for further launches.

    None of the ``refused`` is among them.
    """
    mode = options.save_mode
    assert mode is not None
    return [
        new.case
        for new in new_sessions(result)
        if new.case.id in case_ids
        and new.case.id not in refused
        and not refusal(new, baseline.cases.get(new.case.id), mode)
        and _lacks(result, new.case.id, reasons_to_leave_out(new, result, mode))
        and _is_affordable(result, new.case, options.budget_s)
    ]


def launches_in_rounds(
    cases: Sequence[Case], case_ids: Collection[str], result: SuiteResult
) -> dict[str, int]:
    """Return how many more launches each case gets, by case id.

    The one-rank case of a case gets them in the same rounds, unless a launch of it failed.
    """
    more: dict[str, int] = {}
    for case in cases:
        more[case.id] = case.schedule.launches
        single = case.single
        if single in case_ids and single is not None and not result.measurements[single].failed:
            more[single] = case.schedule.launches
    return more


def _lacks(result: SuiteResult, case_id: str, metrics: Collection[str]) -> bool:
    """Return whether the case has no level of one of the metrics, and this session gives none."""
    found = [result.finding(case_id, metric) for metric in metrics]
    return any(one is not None and one.verdict.outcome in _WITHOUT_LEVEL for one in found)


def _is_affordable(result: SuiteResult, case: Case, budget_s: float) -> bool:
    measurement = result.measurements[case.id]
    launches, first = measurement.launches, case.schedule.launches * (len(measurement.nodes) or 1)
    each_s = sum(launch.wall_s for launch in launches) / len(launches)
    target = len(launches) + first
    return target <= _MOST_TIMES * first and each_s * target <= budget_s


# The cases of a session that are not stored, whatever was measured of them.


def refused_cases(
    cases: Sequence[Case],
    baseline: Baseline,
    store: BaselineStore,
    options: SessionOptions,
    other_work: Callable[[Case], str | None],
    *,
    reported: Collection[str] = (),
) -> dict[str, Refused]:
    """Return the cases that ``options`` would store and that must not be, by id.

    One of the ``reported`` begins its level unannounced where the machine has other sessions: the
    first session is announced in one night, and the case has another one. It is known before the
    first launch. Raises BaselineError for a broken file.
    """
    if options.save_mode is None:
        return {}
    begins = reported if any(stored.sessions for stored in baseline.cases.values()) else ()
    others = [case for case in cases if case.id not in begins]
    refused = {} if options.begins else _unannounced_cases(others, baseline, store)
    if options.save_mode != "accept":
        # Other work is the stronger reason: who restores no file may promote the results file.
        refused |= _cases_of_other_work(cases, baseline, other_work)
    return refused


def _unannounced_cases(
    cases: Sequence[Case], baseline: Baseline, store: BaselineStore
) -> dict[str, Refused]:
    """Return the cases without a session, of which nobody announced the first one, by id.

    A lost or renamed file looks like one that never was. What got slower in the meantime would be
    the new level. Raises BaselineError for a broken file.
    """
    unknown = [case for case in cases if case.id not in baseline.cases]
    traces = store.traces(baseline.accelerator, unknown[0].suite) if unknown else {}
    found = f"{store.path(baseline.accelerator)} has no session of the case"
    remedy = (
        "a strict session appends, and begins no level: restore the file, or announce the first"
        " session with --save-baseline, or store this one by its results file: ddp-perf baseline"
        " promote"
    )
    refused = {}
    for case in unknown:
        trace = f", and {traces[case.id]}" if case.id in traces else ""
        refused[case.id] = Refused(reason=f"{found}{trace}; {remedy}", cause="unannounced")
    return refused


def _cases_of_other_work(
    cases: Sequence[Case], baseline: Baseline, other_work: Callable[[Case], str | None]
) -> dict[str, Refused]:
    """Return the cases that would begin a level, although their step does other work, by id.

    ``other_work`` tells it by what is stored of the code, on any machine.
    """
    stored = baseline.cases
    beginning = [case for case in cases if case.id not in stored or not stored[case.id].has_level]
    found = {case.id: other_work(case) for case in beginning if case.trains}
    return {
        case_id: Refused(
            reason=f"{why}; fix it, or if it is intended, accept the counts first: pytest -m work"
            ' --save-baseline=accept --ddp-reason "…"',
            cause="other work",
        )
        for case_id, why in found.items()
        if why is not None
    }


# What an interrupt leaves is stored; so is what the second stage of a session decides.


Note = Callable[[SuiteResult], None]
_AGAIN = "within an hour the same command goes on from its launches, and stores them"
Keep = Callable[..., SuiteResult]  # stores cases of a result, and returns it with what is stored
# Decides what is undecided; see `ddp_perf.settle`. Its last argument receives partial results.
Settle = Callable[[SuiteResult, Baseline, Note], SuiteResult]


@contextlib.contextmanager
def kept_if_ended(
    result: SuiteResult, on_partial: Note, keep: Callable[[SuiteResult], SuiteResult]
) -> Iterator[Note]:
    """Yield what notes each partial result; ``keep`` stores the newest one if the block is ended.

    What ends the block is raised, even if the result cannot be stored.
    """
    newest = result

    def note(partial: SuiteResult) -> None:
        nonlocal newest
        newest = partial
        on_partial(partial)

    try:
        yield note
    except BaseException:
        with contextlib.suppress(Exception):
            on_partial(keep(newest))
        raise


def stored_or_kept(
    save: Keep, root: Path, result: SuiteResult, case_ids: Collection[str], **changes: Saving
) -> SuiteResult:
    """Store the cases by ``save``, or keep the whole result in a file of its own.

    Raises BaselineError that names the file, and that the same command goes on from the launches.
    """
    try:
        return save(result, case_ids, **changes)
    except BaselineError as error:
        why = str(error)
    again = "" if result.environment.tree is None else f"; {_AGAIN}"
    try:
        path = keep_results(root, "not-stored", [result])
    except OSError as error:
        raise BaselineError(f"{why}; {error.strerror}{again}") from None
    raise BaselineError(f"{why}; the measurements are in {path}{again}")


def store_improvements(result: SuiteResult, saving: Saving, keep: Keep) -> SuiteResult:
    """Make the settled improvements the levels of their cases, so that losing one is red.

    The step of such a case is settled to be faster, while nothing of it is worse.
    """
    for case_id, settled in result.settled.items():
        own = [found for found in result.findings if found.case_id == case_id]
        step = result.finding(case_id, STEP_TIME.name)
        if not settled.pairs or step is None or step.verdict.outcome is not Outcome.IMPROVEMENT:
            continue
        if all(found.verdict.outcome.is_good for found in own if found.target is None):
            reason = f"a settled improvement: {step.reason}"
            accepting = msgspec.structs.replace(saving, mode="accept", reason=reason)
            result = keep(result, [case_id], saving=accepting)
    return result
