"""The cases of a session that are not stored, whatever was measured of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ddp_perf.baselines.save import Refused
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.session.measure.bench import Policy


def refused_cases(
    cases: Sequence[Case],
    baseline: Baseline,
    store: BaselineStore,
    policy: Policy,
    other_work: Callable[[Case], str | None],
    *,
    reported: Collection[str] = (),
) -> dict[str, Refused]:
    """Return the cases that ``policy`` would store and that must not be, by id.

    One of the ``reported`` begins its level unannounced where the machine has other sessions: the
    first session is announced in one night, and the case has another one. It is known before the
    first launch. Raises BaselineError for a broken file.
    """
    if policy.save_mode is None:
        return {}
    begins = reported if any(stored.sessions for stored in baseline.cases.values()) else ()
    others = [case for case in cases if case.id not in begins]
    refused = {} if policy.begins else _unannounced_cases(others, baseline, store)
    if policy.save_mode != "accept":
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
    return {case.id: _unannounced(case, baseline, store, traces.get(case.id)) for case in unknown}


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
            reason=f"{why}; mend it, or if it is intended, accept the counts first: pytest -m work"
            ' --save-baseline=accept --ddp-reason "…"',
            cause="other work",
        )
        for case_id, why in found.items()
        if why is not None
    }


def _unannounced(
    case: Case, baseline: Baseline, store: BaselineStore, trace: str | None
) -> Refused:
    found = f"{store.path(baseline.accelerator)} has no session of the case"
    if trace is not None:
        found += f", and {trace}"
    remedy = (
        "a strict session appends, and begins no level: restore the file, or announce the first"
        " session with --save-baseline, or store this one by its results file: ddp-perf baseline"
        " promote"
    )
    return Refused(reason=f"{found}; {remedy}", cause="unannounced")
