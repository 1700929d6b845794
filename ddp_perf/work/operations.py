"""Changes of the operations of a step: totals by phase, name and dtype."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from ddp_perf.core.work import HOST_READS, PHASES, OperationCount, Phase, Site, StepWork
from ddp_perf.work.amounts import Amount, amounts_by_site, changed_places, total
from ddp_perf.work.host_reads import is_host_read
from ddp_perf.work.sites import MatchedSites
from ddp_perf.work.values import ChangeKind, Place, WorkChange

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
    for was, now in _moved(deltas):
        yield _change(now, before, after, deltas.pop(now), moved_from=was[0])
        del deltas[was]
    for was, now in _converted(deltas):
        yield _conversion(was, now, before, after, deltas.pop(was), deltas.pop(now))
    for key, delta in deltas.items():
        yield _change(key, before, after, delta)


def _table(work: StepWork, sites: tuple[Site, ...]) -> _Table:
    return amounts_by_site(
        (
            (one.phase, one.name, one.dtype),
            sites[one.site],
            Amount(one.count, one.read + one.written, one.flops),
        )
        for one in work.operations
    )


def _amount(table: _Table, key: _Key) -> Amount:
    return total(table.get(key, {}))


def _moved(deltas: Mapping[_Key, Amount]) -> list[tuple[_Key, _Key]]:
    """Return the keys between which the same amount moved: from, to.

    Reads of an optimizer are on the host, and those of other phases are not: none moves.
    """
    found: list[tuple[_Key, _Key]] = []
    movable = [key for key in deltas if key[0] != "optimizer" or key[1] not in HOST_READS]
    for _, group in itertools.groupby(sorted(movable, key=_without_phase), key=_without_phase):
        keys = sorted(group, key=lambda key: PHASES.index(key[0]))
        fewer = [key for key in keys if deltas[key].count < 0]
        more = [key for key in keys if deltas[key].count > 0]
        for was in fewer:
            now = next((key for key in more if deltas[key] == -deltas[was]), None)
            if now is not None:
                more.remove(now)
                found.append((was, now))
    return found


def _without_phase(key: _Key) -> tuple[str, str]:
    return key[1], key[2]


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
