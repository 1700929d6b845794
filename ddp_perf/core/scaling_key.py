"""The key of a scaling curve: its cases do the same work on each rank, or on all together."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from ddp_perf.core.case import Scalar

# Fields of the work, or groups of them (the part before the dot), that may differ on a curve.
RANKS = frozenset({"world_size", "nodes"})
# One rank has nobody to exchange with: its run may have no strategy.
RANKS_AND_STRATEGY = RANKS | {"strategy", "ddp", "fsdp", "comm_hook"}


def work_without(work: Mapping[str, Scalar], fields: Collection[str]) -> dict[str, Scalar]:
    """Return the fingerprint without these fields and groups of fields.

    What follows from the number of ranks is left out with it: on a strong curve the batch per rank,
    and of a script the samples of a step.
    """
    if set(fields) >= RANKS:
        fields = {*fields, "samples", *(["batch_size"] if "global_batch" in work else [])}
    return {name: value for name, value in work.items() if name.partition(".")[0] not in fields}


def samples_of(work: Mapping[str, Scalar]) -> int:
    """Return the samples of a training step over all ranks and micro-steps."""
    if "samples" in work:
        return int(work["samples"])
    each = int(work["batch_size"]) * int(work.get("gradient_accumulation", 1))
    return each * int(work["world_size"])


def scaling_key(work: Mapping[str, Scalar]) -> str:
    """Return a key that all cases of one scaling curve share, whatever their number of ranks."""
    return repr(sorted(work_without(work, RANKS).items()))


def layout_curves(works: Sequence[Mapping[str, Scalar]]) -> dict[int | None, list[int]]:
    """Return the curves of cases with one scaling key: the places of the cases, by layout.

    A curve has one number of ranks on each node. It consists of the cases of several nodes with as
    many on each, and of those of one node with no more. So 2 × 8 and 4 × 4 ranks are on two curves,
    and 4 ranks of one node are on both. None: one node, if some of its cases are on no other curve.
    """
    ranks = [int(work["world_size"]) for work in works]
    nodes = [int(work.get("nodes", 1)) for work in works]
    on_one = [place for place, count in enumerate(nodes) if count == 1]
    sizes = sorted({n // count for n, count in zip(ranks, nodes, strict=True) if count > 1})
    curves: dict[int | None, list[int]] = {}
    if not sizes or any(ranks[place] > max(sizes) for place in on_one):
        curves[None] = on_one
    for size in sizes:
        across = [p for p, count in enumerate(nodes) if count > 1 and ranks[p] // count == size]
        curves[size] = [*(place for place in on_one if ranks[place] <= size), *across]
    return curves


def curve_label(case_id: str, ranks: int) -> str:
    """Return a case's id without its ranks and nodes: ``mlp-b64`` of ``mlp-ws16-2x8-b64``."""
    return re.sub(rf"(^|-)ws{ranks}(-\d+x\d+)?(?=-|$)", "", case_id)
