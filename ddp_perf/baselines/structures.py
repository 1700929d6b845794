"""The structures of a suite: which one its file states for a case, and which ones are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddp_perf.baselines.save import NewSession, SaveMode, is_comparable
from ddp_perf.core.baseline import Baseline, CaseBaseline, CaseStructure
from ddp_perf.core.case import Case
from ddp_perf.core.launch import Structure
from ddp_perf.core.scaling_key import RANKS, work_without


def known_structure(case: Case, shared: Mapping[str, CaseStructure]) -> Structure | None:
    """Return the structure that the suite's file states for a case, or None.

    Plain DDP does the same on any number of ranks from two on: every rank reduces whole buckets,
    which follow from the model and the options. The smallest number decides. A hook or FSDP
    divides the sent bytes by the ranks, so two ranks do not determine what four do.
    """
    own_entry = [shared[case.id]] if case.id in shared else []
    for stored in [*own_entry, *shared.values()]:
        if stored.work == case.work():
            return stored.structure
    if case.strategy != "ddp" or case.comm_hook is not None or case.world_size == 1:
        return None
    alike = {ranks: stored for ranks, stored in other_sizes(case, shared).items() if ranks > 1}
    return alike[min(alike)].structure if alike else None


def other_sizes(case: Case, shared: Mapping[str, CaseStructure]) -> dict[int, CaseStructure]:
    """Return the structures of the same work on other numbers of ranks, by that number."""
    work = work_without(case.work(), RANKS)
    return {
        ranks: stored
        for stored in shared.values()
        if isinstance(ranks := stored.work.get("world_size"), int)
        and ranks != case.world_size
        and work_without(stored.work, RANKS) == work
    }


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
