"""``ddp-perf baseline promote``: a results file stored as ``--save-baseline`` would have."""

from __future__ import annotations

import msgspec

from ddp_perf.baselines.save import SaveMode, is_stored
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.errors import BaselineError
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.saving import new_sessions, save


def promote(
    result: SuiteResult, store: BaselineStore, *, mode: SaveMode, reason: str | None
) -> SuiteResult:
    """The result with ``saved`` and ``not_saved`` of this promotion.

    Raises BaselineError where its ranks were slowed on purpose, or the file cannot be written.
    """
    if result.injections:
        raise BaselineError(
            f"{result.suite}: what --ddp-inject slowed is no baseline"
            f" ({', '.join(result.injections)})"
        )
    key = result.environment.accelerator_key
    baseline = store.load(key)
    there = {
        new.case.id
        for new in new_sessions(result)
        if (stored := baseline.cases.get(new.case.id)) and is_stored(stored, new.session)
    }
    fresh = msgspec.structs.replace(
        result,
        baseline_path=str(store.path(key)),
        saved={},
        not_saved=dict.fromkeys(sorted(there), "not stored: this very session is stored already"),
    )
    wanted = [case_id for case_id in result.measurements if case_id not in there]
    return save(fresh, wanted, baseline, store, mode=mode, reason=reason)
