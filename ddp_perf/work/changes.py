"""Changes between two counted steps: each difference with its numbers and its places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ddp_perf.core.launch import Structure
from ddp_perf.core.work import Compilation, GraphBreak, KeptMemory, Site, StepWork
from ddp_perf.session.gate.exact import bucket_sizes
from ddp_perf.work.amounts import Amount, amounts_by_site, changed_places, total
from ddp_perf.work.collectives import collective_changes
from ddp_perf.work.operations import operation_changes
from ddp_perf.work.sites import MatchedSites, match_sites
from ddp_perf.work.values import Place, WorkChange

# Nominal seconds, which only put the changes in order: the report models the cost.
_SECONDS_EACH = {
    "operation": 5e-6,
    "host_read": 50e-6,
    "collective": 20e-6,
    "autograd": 1e-6,
    "calls": 0.2e-6,
    "compilation": 100e-6,
}
_SECONDS_OF_A_VIEW = 0.5e-6  # no kernel runs
_SECONDS_PER_KEPT_BYTE = 1e-6  # a leak ends in a failure, sooner or later
_SECONDS_PER_BYTE = 1e-12
_SECONDS_PER_SENT_BYTE = 1e-10
_SECONDS_PER_FLOP = 1e-14
_NOT_COMPILED = Compilation(graphs=0)
KEPT = "memory kept after the step"
HELD = "memory that the step before holds"


def work_changes(old: StepWork, new: StepWork) -> tuple[WorkChange, ...]:
    """Return each change of the work of a step; what costs most comes first, and more before less.

    Only totals are compared. Sites name the places of a change, and are no change themselves.
    """
    sites = match_sites(old, new)
    changes = [
        *operation_changes(old, new, sites),
        *collective_changes(old, new, sites),
        *_memory_changes(old, new, sites),
        *_call_changes(old, new, sites),
        *_autograd_changes(old.autograd_nodes, new.autograd_nodes),
        *_compilation_changes(old, new, sites),
        *_model_changes(old.structure, new.structure),
    ]
    flop_s = _seconds_per_flop(old)
    return tuple(sorted(changes, key=lambda change: (not grows(change), -_weight(change, flop_s))))


def added_work(old: StepWork, new: StepWork) -> float:
    """Return the nominal seconds of what the new step does more: they only put steps in order."""
    flop_s = _seconds_per_flop(old)
    return sum(_weight(change, flop_s) for change in work_changes(old, new) if grows(change))


def _seconds_per_flop(work: StepWork) -> float:
    """Return the nominal seconds of a FLOP: those of a step take at least as long as its dispatch.

    So a third more FLOPs come before a few more small operations, also of a small model.
    """
    flops = sum(one.flops for one in work.operations)
    operations = sum(one.count for one in work.operations)
    dispatch_s = operations * _SECONDS_EACH["operation"]
    return max(_SECONDS_PER_FLOP, dispatch_s / flops) if flops else _SECONDS_PER_FLOP


def grows(change: WorkChange) -> bool:
    """Return whether the step does more of something: also where less of it can overlap."""
    before, after = _in_order_of_cost(change)
    return change.moved_from is None and (after > before or change.bytes > 0 or change.flops > 0)


def shrinks(change: WorkChange) -> bool:
    """Return whether the step does less of something. A change can be both: fewer, but larger."""
    before, after = _in_order_of_cost(change)
    return change.moved_from is None and (after < before or change.bytes < 0 or change.flops < 0)


def _in_order_of_cost(change: WorkChange) -> tuple[int, int]:
    """Return the numbers before and after, so that more costs more."""
    if change.kind == "collective" and change.unit == "FLOPs":
        return -change.before, -change.after
    return change.before, change.after


def _weight(change: WorkChange, flop_s: float) -> float:
    if change.moved_from is not None:
        return 0.0
    per_byte = _SECONDS_PER_SENT_BYTE if change.kind == "collective" else _SECONDS_PER_BYTE
    if change.what in (KEPT, HELD):
        return abs(change.after - change.before) * _SECONDS_PER_KEPT_BYTE
    if change.kind in ("memory", "model"):
        return 0.0
    seconds = abs(change.bytes) * per_byte + abs(change.flops) * flop_s
    number = abs(change.after - change.before)
    each = flop_s if change.unit == "FLOPs" else _SECONDS_EACH[change.kind]
    if change.kind == "operation" and not seconds:
        each = _SECONDS_OF_A_VIEW
    return seconds + number * each


def _memory_changes(old: StepWork, new: StepWork, sites: MatchedSites) -> Iterator[WorkChange]:
    before, after = old.memory, new.memory
    numbers = (
        ("allocations", before.allocations, after.allocations, after.allocated - before.allocated),
        (
            "tensors saved for the backward",
            before.saved_tensors,
            after.saved_tensors,
            after.saved - before.saved,
        ),
    )
    for what, then, now, more_bytes in numbers:
        if then != now or more_bytes:
            yield WorkChange(kind="memory", what=what, before=then, after=now, bytes=more_bytes)
    if before.peak != after.peak:
        yield WorkChange(
            kind="memory", what="peak memory", unit="bytes", before=before.peak, after=after.peak
        )
    for what, then, now, places in (
        (KEPT, before.kept, after.kept, _places_of_memory(old.kept, new.kept, sites)),
        (HELD, before.held, after.held, _places_of_memory(old.held, new.held, sites)),
    ):
        if then != now:
            yield WorkChange(
                kind="memory", what=what, unit="bytes", before=then, after=now, places=places
            )


def _places_of_memory(
    old: Sequence[KeptMemory], new: Sequence[KeptMemory], sites: MatchedSites
) -> tuple[Place, ...]:
    before, after = (
        amounts_by_site(("", of[one.site], Amount(one.bytes)) for one in memory).get("", {})
        for memory, of in ((old, sites.old), (new, sites.new))
    )
    return changed_places(before, after, total(after) - total(before))


def _call_changes(old: StepWork, new: StepWork, sites: MatchedSites) -> Iterator[WorkChange]:
    """Yield each function of the user's that is called more or less often.

    A renamed or moved function is no change. So functions are compared by file and name, and those
    that only one of the steps has are paired if they are called equally often. If all functions of
    both steps are called equally often, in any order, nothing changed.
    """
    before, after = _calls(old, sites.old), _calls(new, sites.new)
    numbers = [{name: total(where).count for name, where in of.items()} for of in (before, after)]
    for name, (then, now) in sorted(_unpaired(*numbers).items()):
        yield WorkChange(
            kind="calls",
            what=name[1],
            before=then,
            after=now,
            places=changed_places(before.get(name, {}), after.get(name, {}), Amount(now - then)),
        )


def _calls(work: StepWork, matched: Sequence[Site]) -> dict[tuple[str, str], dict[Site, Amount]]:
    """Return the calls of each function, by its file and name in its own version."""
    return amounts_by_site(
        (
            (work.sites[one.site].file, work.sites[one.site].function),
            matched[one.site],
            Amount(one.count),
        )
        for one in work.calls
    )


def _unpaired(
    before: Mapping[tuple[str, str], int], after: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the numbers of each name that differ, without those that are renamed."""
    if sorted(before.values()) == sorted(after.values()):
        return {}
    fresh = {name: number for name, number in after.items() if name not in before}
    gone = {name: number for name, number in before.items() if name not in after}
    renamed = _renamed(gone, fresh)
    return {
        name: (before.get(name, 0), after.get(name, 0))
        for name in before.keys() | after.keys()
        if before.get(name, 0) != after.get(name, 0) and name not in renamed
    }


def _renamed(
    gone: Mapping[tuple[str, str], int], fresh: Mapping[tuple[str, str], int]
) -> set[tuple[str, str]]:
    """Return the names that are paired: called equally often, if possible in the same file."""
    paired: set[tuple[str, str]] = set()
    for same_file in (True, False):
        for was in sorted(gone.keys() - paired):
            for now in sorted(fresh.keys() - paired):
                if gone[was] == fresh[now] and (was[0] == now[0] or not same_file):
                    paired |= {was, now}
                    break
    return paired


def _autograd_changes(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[WorkChange]:
    """Yield each node of the autograd graph of which there are more or fewer.

    torch's own end in a number ("MulBackward0"). Others are named by a user's class, which may be
    renamed as a function may.
    """
    changed = {name: (old.get(name, 0), new.get(name, 0)) for name in old.keys() | new.keys()}
    users = [
        {("", name): number for name, number in nodes.items() if not name[-1:].isdigit()}
        for nodes in (old, new)
    ]
    unpaired = _unpaired(*users)
    for name, (then, now) in sorted(changed.items()):
        if then != now and (name[-1:].isdigit() or ("", name) in unpaired):
            yield WorkChange(kind="autograd", what=name, before=then, after=now)


def _compilation_changes(old: StepWork, new: StepWork, sites: MatchedSites) -> Iterator[WorkChange]:
    before, after = old.compilation or _NOT_COMPILED, new.compilation or _NOT_COMPILED
    for what, then, now in (
        ("graph break", before.breaks, after.breaks),
        ("recompilation", before.recompilations, after.recompilations),
    ):
        if len(then) != len(now):
            more = len(now) - len(then)
            yield WorkChange(
                kind="compilation",
                what=what,
                before=len(then),
                after=len(now),
                places=_places_of_breaks(then, now, sites, more),
                detail="; ".join(_reasons(then, now) if more > 0 else _reasons(now, then)),
            )
    if before.graphs != after.graphs:
        yield WorkChange(kind="compilation", what="graph", before=before.graphs, after=after.graphs)


def _places_of_breaks(
    then: Sequence[GraphBreak], now: Sequence[GraphBreak], sites: MatchedSites, more: int
) -> tuple[Place, ...]:
    before, after = (
        amounts_by_site(("", of[one.site], Amount(1)) for one in breaks).get("", {})
        for breaks, of in ((then, sites.old), (now, sites.new))
    )
    return changed_places(before, after, Amount(more))


def _reasons(fewer: Sequence[GraphBreak], more: Sequence[GraphBreak]) -> list[str]:
    """Return the reasons of which ``more`` has more."""
    extra = Counter(one.reason for one in more) - Counter(one.reason for one in fewer)
    return sorted(extra)


def _model_changes(old: Structure, new: Structure) -> Iterator[WorkChange]:
    if old.parameters != new.parameters:
        yield WorkChange(
            kind="model", what="parameters", before=old.parameters, after=new.parameters
        )
    if old.gradient_bytes != new.gradient_bytes:
        yield WorkChange(
            kind="model",
            what="gradients",
            unit="bytes",
            before=old.gradient_bytes,
            after=new.gradient_bytes,
        )
    if old.buckets != new.buckets:
        yield WorkChange(
            kind="model",
            what="gradient buckets",
            before=len(old.buckets),
            after=len(new.buckets),
            detail=f"{bucket_sizes(old.buckets)} → {bucket_sizes(new.buckets)}",
        )
