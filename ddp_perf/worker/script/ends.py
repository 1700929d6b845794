"""The end of a script on all ranks: further collectives need every rank, at the same step."""

from __future__ import annotations

import datetime

import torch.distributed as dist

from ddp_perf.core.case import Case
from ddp_perf.torch_compat.internals import default_store
from ddp_perf.worker.script.refusals import ended_apart

_SHARE = 0.5  # of the step's deadline, after which the supervisor would report a hang


def await_other_ends(case: Case, rank: int, how: str, done: int) -> None:
    """Wait until the script has ended on all ranks, each after ``done`` steps.

    The ranks meet in the store of the script's process group: a collective of a rank that trains
    on would be taken for its partner. Raises ScriptError if another rank
    trains on, or trained for another number of steps.
    """
    if case.world_size == 1:
        return
    store = default_store()
    keys = {other: f"ddp_perf/ended/{other}" for other in range(case.world_size)}
    store.set(keys[rank], str(done))
    patience = datetime.timedelta(seconds=_SHARE * case.schedule.step_deadline_s)
    try:
        store.wait(list(keys.values()), patience)
    except dist.DistStoreError:
        going = {other: None for other, key in keys.items() if not store.check([key])}
        raise ended_apart(case, how, done, going) from None
    steps = {other: int(store.get(key)) for other, key in keys.items()}
    others = {other: count for other, count in steps.items() if count != done}
    if others:
        raise ended_apart(case, how, done, others)
