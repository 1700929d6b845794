"""Changes between two counted steps: each difference with its numbers and its places."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ddp_perf.core.launch import Structure
from ddp_perf.core.work import (
    Compilation,
    GraphBreak,
    KeptMemory,
    OperationCount,
    Phase,
    Site,
    StepWork,
)
from ddp_perf.session.gate.exact import bucket_sizes
from ddp_perf.work.collectives import collective_changes
from ddp_perf.work.values import (
    Amount,
    ChangeKind,
    MatchedSites,
    Place,
    WorkChange,
    amount_of,
    amounts_by_site,
    changed_places,
    is_host_read,
    match_sites,
    moved_keys,
    total,
    total_of,
)

# Changes of the operations of a step: totals by phase, name and dtype.


_Key = tuple[Phase, str, str]  # phase, name, dtype
_Table = Mapping[_Key, Mapping[Site, Amount]]


def operation_changes(old: StepWork, new: StepWork, sites: MatchedSites) -> Iterator[WorkChange]:
    """Yield each change of an operation.

    An amount that left one phase and is in another one is moved. As many operations of one dtype
    less as of another one more are one change of dtype.
    """
    before, after = _table(old, sites.old), _table(new, sites.new)
    keys = sorted(before.keys() | after.keys())
    deltas = {key: delta for key in keys if (delta := _amount(after, key) - _amount(before, key))}
    for was, now in moved_keys(deltas):
        yield _change(now, before, after, deltas.pop(now), moved_from=was[0])
        del deltas[was]
    for was, now in _converted(deltas):
        yield _conversion(was, now, before, after, deltas.pop(was), deltas.pop(now))
    for key, delta in deltas.items():
        yield _change(key, before, after, delta)


def _table(work: StepWork, sites: tuple[Site, ...]) -> _Table:
    return amounts_by_site(
        ((one.phase, one.name, one.dtype), sites[one.site], amount_of(one))
        for one in work.operations
    )


def _amount(table: _Table, key: _Key) -> Amount:
    return total(table.get(key, {}))


def _converted(deltas: Mapping[_Key, Amount]) -> list[tuple[_Key, _Key]]:
    """Return the keys of an operation between which as many changed their dtype: from, to."""
    found: list[tuple[_Key, _Key]] = []
    for _, group in itertools.groupby(sorted(deltas), key=lambda key: key[:2]):
        keys = list(group)
        more = [key for key in keys if deltas[key].count > 0]
        for was in (key for key in keys if deltas[key].count < 0):
            now = next((key for key in more if deltas[key].count == -deltas[was].count), None)
            if now is not None:
                more.remove(now)
                found.append((was, now))
    return found


def _change(
    key: _Key, before: _Table, after: _Table, delta: Amount, *, moved_from: Phase | None = None
) -> WorkChange:
    """Return the change of a key. What moved is a number of operations that did not change."""
    phase, name, dtype = key
    moved = moved_from is not None
    places = changed_places(before.get(key, {}), after.get(key, {}), delta)
    return WorkChange(
        kind=_kind(key, places),
        what=f"{name} ({dtype})",
        name=name,
        dtypes=(dtype,),
        phase=phase,
        moved_from=moved_from,
        before=delta.count if moved else _amount(before, key).count,
        after=delta.count if moved else _amount(after, key).count,
        bytes=0 if moved else delta.bytes,
        flops=0 if moved else delta.flops,
        places=places,
    )


def _conversion(
    was: _Key, now: _Key, before: _Table, after: _Table, fewer: Amount, more: Amount
) -> WorkChange:
    """Return a change of dtype. ``before`` and ``after`` are the operations that it is about."""
    phase, name, dtype = now
    net = fewer + more
    places = changed_places(before.get(now, {}), after.get(now, {}), more)
    return WorkChange(
        kind=_kind(now, places),
        what=f"{name}: {was[2]} → {dtype}",
        name=name,
        dtypes=(was[2], dtype),
        phase=phase,
        before=more.count,
        after=more.count,
        bytes=net.bytes,
        flops=net.flops,
        places=places,
    )


def _kind(key: _Key, places: Sequence[Place]) -> ChangeKind:
    """Return the kind of a change: that of host reads if one of its places reads."""
    phase, name, dtype = key
    one = OperationCount(phase=phase, name=name, dtype=dtype, site=0, count=1)
    reads = any(is_host_read(one, place.site) for place in places)
    return "host_read" if reads else "operation"


# Changes between two counted steps: each difference with its numbers and its places.


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
    step = total_of(work)
    dispatch_s = step.count * _SECONDS_EACH["operation"]
    return max(_SECONDS_PER_FLOP, dispatch_s / step.flops) if step.flops else _SECONDS_PER_FLOP


def grows(change: WorkChange) -> bool:
    """Return whether the step does more of something: also where less of it can overlap."""
    before, after = _in_order_of_cost(change)
    return change.moved_from is None and (after > before or change.bytes > 0 or change.flops > 0)


def shrinks(change: WorkChange) -> bool:
    """Return whether the step does less of something. A change can be both: fewer, but larger."""
    before, after = _in_order_of_cost(change)
    return change.moved_from is None and (after < before or change.bytes < 0 or change.flops < 0)


def line_of(change: WorkChange, edited: Sequence[Site]) -> Site | None:
    """Return the line of more or other work: an edited one, or where most of it is.

    None: the change is only less, or has no line.
    """
    places = [place.site for place in change.places]
    if not places or (shrinks(change) and not grows(change)):
        return None
    lines = {(site.file, site.line) for site in places}
    return next((site for site in edited if (site.file, site.line) in lines), places[0])


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


def _changed(
    kind: ChangeKind, what: str, before: int, after: int, **more: Any
) -> Iterator[WorkChange]:
    """Yield the change of a number, unless neither it nor its bytes differ."""
    if before != after or more.get("bytes"):
        yield WorkChange(kind=kind, what=what, before=before, after=after, **more)


def _memory_changes(old: StepWork, new: StepWork, sites: MatchedSites) -> Iterator[WorkChange]:
    then, now = old.memory, new.memory
    more, saved = now.allocated - then.allocated, now.saved - then.saved
    what = "tensors saved for the backward"
    yield from _changed("memory", "allocations", then.allocations, now.allocations, bytes=more)
    yield from _changed("memory", what, then.saved_tensors, now.saved_tensors, bytes=saved)
    yield from _changed("memory", "peak memory", then.peak, now.peak, unit="bytes")
    places = _places_between(old.kept, new.kept, sites)
    yield from _changed("memory", KEPT, then.kept, now.kept, unit="bytes", places=places)
    places = _places_between(old.held, new.held, sites)
    yield from _changed("memory", HELD, then.held, now.held, unit="bytes", places=places)


def _places_between(
    old: Sequence[KeptMemory | GraphBreak],
    new: Sequence[KeptMemory | GraphBreak],
    sites: MatchedSites,
) -> tuple[Place, ...]:
    """Return where memory, or the number of breaks, changed."""
    before, after = (
        amounts_by_site(
            ("", of[one.site], Amount(one.bytes if isinstance(one, KeptMemory) else 1))
            for one in counts
        ).get("", {})
        for counts, of in ((old, sites.old), (new, sites.new))
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
        yield from _changed(
            "compilation",
            what,
            len(then),
            len(now),
            places=_places_between(then, now, sites),
            detail="; ".join(_reasons(*sorted((then, now), key=len))),
        )
    yield from _changed("compilation", "graph", before.graphs, after.graphs)


def _reasons(fewer: Sequence[GraphBreak], more: Sequence[GraphBreak]) -> list[str]:
    """Return the reasons of which ``more`` has more."""
    extra = Counter(one.reason for one in more) - Counter(one.reason for one in fewer)
    return sorted(extra)


def _model_changes(old: Structure, new: Structure) -> Iterator[WorkChange]:
    before, after = old.gradient_bytes, new.gradient_bytes
    yield from _changed("model", "parameters", old.parameters, new.parameters)
    yield from _changed("model", "gradients", before, after, unit="bytes")
    if old.buckets != new.buckets:
        yield WorkChange(
            kind="model",
            what="gradient buckets",
            before=len(old.buckets),
            after=len(new.buckets),
            detail=f"{bucket_sizes(old.buckets)} → {bucket_sizes(new.buckets)}",
        )
