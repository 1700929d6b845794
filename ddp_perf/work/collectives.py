"""Changes of the collectives of a step: their number, bytes and order, and what can hide them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ddp_perf.core.work import CollectiveCount, Phase, Site, StepWork
from ddp_perf.render.units import counted
from ddp_perf.work.values import (
    Amount,
    MatchedSites,
    Place,
    WorkChange,
    amounts_by_site,
    changed_places,
    moved_keys,
    total,
)

_Key = tuple[Phase, str, str, int, int]  # phase, kind, dtype, bytes, ranks of its group (0: all)
_Table = Mapping[_Key, Mapping[Site, Amount]]


def collective_changes(old: StepWork, new: StepWork, sites: MatchedSites) -> Iterator[WorkChange]:
    """Yield each change of a collective, of those that wait, of their order and their overlap."""
    before, after = _tables(old, sites.old), _tables(new, sites.new)
    yield from _number_changes(before[0], after[0])
    yield from _waiting_changes(before, after)
    first, second = ([_key(one) for one in work.collectives] for work in (old, new))
    if first != second and sorted(first) == sorted(second):
        number = len(first)
        what = "order of the collectives"
        yield WorkChange(kind="collective", what=what, before=number, after=number)
    yield from _exposed_changes(old, new, sites)
    yield from _overlap_changes(old, new, sites)


def disagreement(first: StepWork, last: StepWork) -> str | None:
    """Return how the collectives of the last rank differ from those of the first one, or None.

    Ranks must issue the same ones in the same order. Operations may differ: FSDP shards unevenly.
    """
    pairs = zip(first.collectives, last.collectives, strict=False)
    for number, (one, other) in enumerate(pairs, start=1):
        if _key(one)[1:] != _key(other)[1:]:
            return (
                f"collective {number} of the first rank is {_name(_key(one))}, and that of the last"
                f" rank {_name(_key(other))}"
            )
    numbers = [len(work.collectives) for work in (first, last)]
    if numbers[0] == numbers[1]:
        return None
    return f"the first rank issues {counted(numbers[0], 'collective')}, the last one {numbers[1]}"


def _key(one: CollectiveCount) -> _Key:
    return one.phase, one.kind, one.dtype, one.bytes, one.group or 0


def _name(key: _Key) -> str:
    _, kind, dtype, size, group = key
    return f"{kind} of {size:,} bytes ({dtype}){_ranks(group)}"


def _ranks(group: int) -> str:
    return f" in groups of {counted(group, 'rank')}" if group else ""


def _tables(work: StepWork, sites: tuple[Site, ...]) -> tuple[_Table, _Table]:
    """Return all collectives, and those for which the step waits at once."""
    items = [(one, _key(one), sites[one.site]) for one in work.collectives]
    everything = ((key, site, Amount(1, one.bytes)) for one, key, site in items)
    waiting = ((key, site, Amount(1)) for one, key, site in items if not one.asynchronous)
    return amounts_by_site(everything), amounts_by_site(waiting)


def _delta(before: _Table, after: _Table, key: _Key) -> Amount:
    return total(after.get(key, {})) - total(before.get(key, {}))


def _number_changes(before: _Table, after: _Table) -> Iterator[WorkChange]:
    keys = sorted(before.keys() | after.keys())
    left = {key: delta for key in keys if (delta := _delta(before, after, key))}
    for was, now in moved_keys(left):
        del left[was]
        delta = left.pop(now)
        yield _number_change(now, delta, before, after, moved_from=was[0])
    groups: dict[tuple[Phase, str, str, int], list[_Key]] = defaultdict(list)
    for key in left:
        phase, kind, dtype, _, group = key
        groups[phase, kind, dtype, group].append(key)
    for of in groups.values():
        if len(of) == 1:
            yield _number_change(of[0], left[of[0]], before, after)
        else:
            yield _other_sizes(of, left, before, after)


def _number_change(
    key: _Key, delta: Amount, before: _Table, after: _Table, *, moved_from: Phase | None = None
) -> WorkChange:
    """Return the change of a key. What moved is a number of collectives that did not change."""
    then, now = before.get(key, {}), after.get(key, {})
    moved = moved_from is not None
    return WorkChange(
        kind="collective",
        what=_name(key),
        name=key[1],
        dtypes=(key[2],),
        group=key[-1] or None,
        phase=key[0],
        moved_from=moved_from,
        before=delta.count if moved else total(then).count,
        after=delta.count if moved else total(now).count,
        bytes=0 if moved else delta.bytes,
        places=changed_places(then, now, delta),
    )


def _other_sizes(
    keys: Sequence[_Key], deltas: Mapping[_Key, Amount], before: _Table, after: _Table
) -> WorkChange:
    """Return one change of collectives that are the same but for their sizes."""
    phase, kind, dtype, _, group = keys[0]
    fewer = {key[3]: -deltas[key].count for key in keys if deltas[key].count < 0}
    more = {key[3]: deltas[key].count for key in keys if deltas[key].count > 0}
    largest = max(keys, key=lambda key: deltas[key])
    return WorkChange(
        kind="collective",
        what=f"{kind} ({dtype}){_ranks(group)}",
        name=kind,
        dtypes=(dtype,),
        group=group or None,
        phase=phase,
        before=sum(fewer.values()),
        after=sum(more.values()),
        bytes=sum(deltas[key].bytes for key in keys),
        places=changed_places(before.get(largest, {}), after.get(largest, {}), deltas[largest]),
        detail=f"{_sizes(fewer)} → {_sizes(more)} bytes",
    )


def _sizes(numbers: Mapping[int, int]) -> str:
    each = sorted(numbers.items())
    return " + ".join(f"{n} × {size:,}" if n > 1 else f"{size:,}" for size, n in each) or "none"


def _waiting_changes(
    before: tuple[_Table, _Table], after: tuple[_Table, _Table]
) -> Iterator[WorkChange]:
    """Yield where more or fewer collectives wait, unless there are just more or fewer of them."""
    for key in sorted(before[0].keys() & after[0].keys()):
        waiting = _delta(before[1], after[1], key)
        if waiting.count * _delta(before[0], after[0], key).count > 0 or not waiting:
            continue
        then, now = before[1].get(key, {}), after[1].get(key, {})
        yield WorkChange(
            kind="collective",
            what=f"synchronous {_name(key)}",
            phase=key[0],
            before=total(then).count,
            after=total(now).count,
            places=changed_places(then, now, waiting),
        )


_Group = tuple[str, str, Phase]  # kind, dtype, phase


def _exposed_changes(old: StepWork, new: StepWork, sites: MatchedSites) -> Iterator[WorkChange]:
    """Yield where more or fewer bytes are sent that no FLOPs of the phase follow.

    It is left out where there are just as many bytes more or fewer at all.
    """
    before, after = _exposed(old, sites.old), _exposed(new, sites.new)
    sent = [_sent(work) for work in (old, new)]
    for key in sorted(before.keys() | after.keys()):
        then, now = before.get(key, {}), after.get(key, {})
        delta = total(now) - total(then)
        if not delta.bytes or delta.bytes * (sent[1].get(key, 0) - sent[0].get(key, 0)) > 0:
            continue
        yield WorkChange(
            kind="collective",
            what=f"{key[0]} ({key[1]}) that no computation follows",
            unit="bytes",
            phase=key[2],
            before=total(then).bytes,
            after=total(now).bytes,
            places=changed_places(then, now, Amount(0, delta.bytes)),
        )


def _exposed(work: StepWork, sites: tuple[Site, ...]) -> dict[_Group, dict[Site, Amount]]:
    return amounts_by_site(
        ((one.kind, one.dtype, one.phase), sites[one.site], Amount(0, one.bytes))
        for one in work.collectives
        if one.flops_after == 0
    )


def _sent(work: StepWork) -> dict[_Group, int]:
    sent: dict[_Group, int] = defaultdict(int)
    for one in work.collectives:
        sent[one.kind, one.dtype, one.phase] += one.bytes
    return sent


def _overlap_changes(old: StepWork, new: StepWork, sites: MatchedSites) -> Iterator[WorkChange]:
    """Yield how many FLOPs follow the same collectives, where fewer or more can hide them.

    FLOPs of the phase that changed themselves change these too, so then they are left out.
    """
    flops = [_flops_by_phase(work) for work in (old, new)]
    before, after = (_in_order(work.collectives) for work in (old, new))
    found: dict[tuple[_Group, bool], list[tuple[int, int, Site]]] = defaultdict(list)
    for key in sorted(before.keys() & after.keys()):
        phase, kind, dtype, _, _ = key
        if len(before[key]) == len(after[key]) and flops[0][phase] == flops[1][phase]:
            for one, other in zip(before[key], after[key], strict=True):
                then, now = one.flops_after, other.flops_after
                if then != now and then and now:
                    which = (kind, dtype, phase), now < then
                    found[which].append((then, now, sites.new[other.site]))
    for ((kind, dtype, phase), _), each in found.items():
        yield WorkChange(
            kind="collective",
            what=f"overlap of {kind} ({dtype})",
            unit="FLOPs",
            phase=phase,
            before=sum(then for then, _, _ in each),
            after=sum(now for _, now, _ in each),
            places=tuple(Place(site=site, count=0) for site in dict.fromkeys(s for *_, s in each)),
        )


def _flops_by_phase(work: StepWork) -> dict[Phase, int]:
    flops: dict[Phase, int] = defaultdict(int)
    for one in work.operations:
        flops[one.phase] += one.flops
    return flops


def _in_order(collectives: Sequence[CollectiveCount]) -> dict[_Key, list[CollectiveCount]]:
    by_key: dict[_Key, list[CollectiveCount]] = defaultdict(list)
    for one in collectives:
        by_key[_key(one)].append(one)
    return dict(by_key)
