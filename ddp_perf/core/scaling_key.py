"""The key of a scaling curve: its cases do the same work on each rank, or on all together."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ddp_perf.core.case import Scalar

# Fields of the work, or groups of them (the part before the dot), that may differ on a curve.
RANKS = frozenset({"world_size"})
# One rank has nobody to exchange with: its run may have no strategy.
RANKS_AND_STRATEGY = RANKS | {"strategy", "ddp", "fsdp", "comm_hook"}


def work_without(work: Mapping[str, Scalar], fields: Collection[str]) -> dict[str, Scalar]:
    """Return the fingerprint without these fields and groups of fields.

    On a strong curve, the batch per rank follows from the number of ranks, and is left out with it.
    """
    if "global_batch" in work and set(fields) >= RANKS:
        fields = {*fields, "batch_size"}
    return {name: value for name, value in work.items() if name.partition(".")[0] not in fields}


def scaling_key(work: Mapping[str, Scalar]) -> str:
    """Return a key that all cases of one scaling curve share, whatever their number of ranks."""
    return repr(sorted(work_without(work, RANKS).items()))


def curve_label(case_id: str, ranks: int) -> str:
    """Return a case's id without its number of ranks: ``mlp-b64`` of ``mlp-ws2-b64``."""
    return "-".join(part for part in case_id.split("-") if part != f"ws{ranks}")
