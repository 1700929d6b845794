"""The bytes that a rank sends in a step, from the exact structure of the step."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.case import Case
from ddp_perf.core.launch import Collective, Structure
from ddp_perf.core.strategy import HierarchicalHook, PostLocalSgdHook
from ddp_perf.stats.link.model import bus_factor


def sent_bytes(case: Case, structure: Structure) -> float | None:
    """Return the bytes that each rank sends, if every collective is a ring.

    A library may take another algorithm; a tree sends as many bytes. None: the steps differ
    (post-local SGD), or it is not known which collectives of a step are those of the hook.
    """
    if isinstance(case.comm_hook, PostLocalSgdHook):
        return None
    ranks: Sequence[int] | None = [case.world_size] * len(structure.collectives)
    if isinstance(case.comm_hook, HierarchicalHook):
        ranks = _ranks_by_group(case, case.comm_hook, structure.collectives)
    if case.replicates:  # gradients are reduced within a node, and their sums between nodes
        within, between = case.ranks_per_node, case.nodes
        ranks = [between if c.kind == "all_reduce" else within for c in structure.collectives]
    if ranks is None:
        return None
    return sum(map(_sent, structure.collectives, ranks))


def _sent(one: Collective, ranks: int) -> float:
    return one.bytes * bus_factor(one.kind, ranks)  # type: ignore[arg-type]  # others: a gather


def _ranks_by_group(
    case: Case, hook: HierarchicalHook, collectives: Sequence[Collective]
) -> list[int] | None:
    """Return the ranks of each collective. Of each bucket, the first and the last are in a group.

    Broadcasts, of buffers, are those of all ranks. None: there are others than those of the hook.
    """
    of_a_bucket = 3 if hook.ratio is None else 4
    size = case.group_size
    assert size is not None  # the hook has groups
    sizes = [size, *[case.world_size // size] * (of_a_bucket - 2), size]
    own = [one for one in collectives if one.kind != "broadcast"]
    if len(own) % of_a_bucket:
        return None
    of_hook = iter(sizes * (len(own) // of_a_bucket))
    return [case.world_size if one.kind == "broadcast" else next(of_hook) for one in collectives]
