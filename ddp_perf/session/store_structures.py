"""``--save-baseline`` of structures: they are of every machine, and committed with the code.

They need one launch and no quiet machine, so they are stored even if the session is not.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from ddp_perf.baselines.save import NewSession, SaveMode
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.baselines.structures import known_structure, merge_structures
from ddp_perf.core.baseline import Baseline
from ddp_perf.session.result import SuiteResult


def save_structures(
    result: SuiteResult,
    sessions: Sequence[NewSession],
    baseline: Baseline,
    store: BaselineStore,
    *,
    mode: SaveMode,
) -> SuiteResult:
    """Store the structures that ``mode`` selects, and return the result with them.

    ``baseline`` is the one before the session. Raises BaselineError if the file cannot be written.
    """
    change = functools.partial(merge_structures, sessions=sessions, baseline=baseline, mode=mode)
    before = store.load_structures(result.suite)
    if change(before) == before:
        return result
    after = store.update_structures(result.suite, change)
    stated = {
        new.case.id: str(store.structure_path(result.suite))
        for new in sessions
        if new.structure is not None
        and known_structure(new.case, after) == new.structure
        and known_structure(new.case, before) != new.structure
    }
    return msgspec.structs.replace(result, saved_structures={**result.saved_structures, **stated})
