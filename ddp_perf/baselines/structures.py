"""The structures of a suite: which one its file states for a case, and which ones are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddp_perf.baselines.save import NewSession, SaveMode, is_comparable
from ddp_perf.core.baseline import Baseline, CaseBaseline, CaseStructure
from ddp_perf.core.case import Case, Scalar
from ddp_perf.core.launch import Structure
from ddp_perf.core.scaling_key import RANKS, work_without
from ddp_perf.core.subject import MODELS

_DATA = frozenset({"batch_size", "global_batch", "data"})


def known_structure(case: Case, shared: Mapping[str, CaseStructure]) -> Structure | None:
    """Return the structure that the suite's file states for a case, or None.

    The entry of the same work decides; else one of the work that determines the structure, the same
    batch first, then the smallest number of ranks.
    """
    work = case.work()
    own_entry = [shared[case.id]] if case.id in shared else []
    for stored in [*own_entry, *shared.values()]:
        if stored.work == work:
            return stored.structure
    determining, batch = determining_work(work), work_without(work, RANKS)
    alike = [stored for stored in shared.values() if determining_work(stored.work) == determining]
    nearest = min(
        alike,
        key=lambda stored: (work_without(stored.work, RANKS) != batch, stored.work["world_size"]),
        default=None,
    )
    return nearest.structure if nearest is not None else None


def determining_work(work: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the part of a fingerprint that determines the structure.

    Batch and data are no part of it: the included workloads send none of it. A user's may, as a
    contrastive loss does, which gathers samples. Ranks reduce whole buckets, whatever their number
    from two on; but FSDP shards over them, and Top-K gathers from each; a script may do either.
    Nodes count where a strategy follows them.
    """
    irrelevant = set(_DATA) if work.get("workload") in MODELS else set()
    follows_nodes = work.get("comm_hook.group_size") == "node" or "fsdp.replicate" in work
    if not follows_nodes:
        irrelevant.add("nodes")
    may_share = work.get("strategy") == "fsdp" or "script" in work
    shares = may_share or "comm_hook.ratio" in work or follows_nodes
    if not shares and work["world_size"] != 1:
        irrelevant.add("world_size")
    return work_without(work, irrelevant)


def other_sizes(case: Case, shared: Mapping[str, CaseStructure]) -> list[int]:
    """Return the other numbers of ranks of which the structure of the same work is stored."""
    work = work_without(determining_work(case.work()), RANKS)
    stored_works = [stored.work for stored in shared.values()]
    alike = [one for one in stored_works if work_without(determining_work(one), RANKS) == work]
    return sorted({int(one["world_size"]) for one in alike} - {case.world_size})


def own_structure(case: Case, stored: CaseBaseline | None) -> Structure | None:
    """Return the structure of this machine's stored sessions, if they are of the same work."""
    return stored.structure if stored is not None and is_comparable(stored, case) else None


def merge_structures(
    shared: Mapping[str, CaseStructure],
    sessions: Sequence[NewSession],
    baseline: Baseline,
    *,
    mode: SaveMode,
) -> dict[str, CaseStructure]:
    """Return the structures of the suite's file, with those of the sessions that ``mode`` stores.

    ``missing`` and ``append`` store what the file does not state yet, and ``accept`` what differs.
    ``baseline`` is this machine's, before the session.
    """
    merged = dict(shared)
    for new in sorted(sessions, key=lambda new: new.case.world_size):
        case, structure = new.case, new.structure
        if structure is None or known_structure(case, merged) == structure:
            continue
        if mode == "accept" or _is_missing(case, structure, shared, baseline):
            merged[case.id] = CaseStructure(work=case.work(), structure=structure)
    return merged


def _is_missing(
    case: Case, structure: Structure, shared: Mapping[str, CaseStructure], baseline: Baseline
) -> bool:
    """Return whether the file states nothing, and this machine's sessions nothing else."""
    if case.id in shared or known_structure(case, shared) is not None:
        return False
    return own_structure(case, baseline.cases.get(case.id)) in (None, structure)
