"""The cases of a session that are not stored, whatever was measured of them."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.baselines.save import Refused
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case


def unannounced_cases(
    cases: Sequence[Case], baseline: Baseline, store: BaselineStore
) -> dict[str, Refused]:
    """Return the cases without a session, of which nobody announced the first one, by id.

    A lost or renamed file looks like one that never was. What got slower in the meantime would be
    the new level. Raises BaselineError for a broken file.
    """
    unknown = [case for case in cases if case.id not in baseline.cases]
    traces = store.traces(baseline.accelerator, cases[0].suite) if unknown else {}
    return {case.id: _unannounced(case, baseline, store, traces.get(case.id)) for case in unknown}


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
    return Refused(reason=f"{found}; {remedy}", is_open="unannounced")
