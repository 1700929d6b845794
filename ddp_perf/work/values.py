"""The values of the work gate: amounts, sites and lines, what changed, and the verdict on it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import HOST_READS, PHASES, OperationCount, Phase, Site, StepWork

# The sites of two versions of the code: which site of the old one is which of the new one.
#
# Sites are no part of the verdict. They name the place of a change, so a line that was only
# renamed, edited or moved must not look new.


_Identity = tuple[str, str, str, str]
_Profile = Counter[tuple[str, str]]  # operations of a site, by phase and name


class MatchedSites(msgspec.Struct, frozen=True):
    """The site that stands for the place of each of ``StepWork.sites``, for both works.

    A place that the new version has is its site there.
    """

    old: tuple[Site, ...]
    new: tuple[Site, ...]


def match_sites(old: StepWork, new: StepWork) -> MatchedSites:
    """Match the sites of two works, those that are most alike first.

    The line's number does not count. Sites with the same file, function, text and module are the
    same place. Of the others, each old site is matched with the new one that shares most of these
    and most operations.
    """
    before, after = _places(old.sites), _places(new.sites)
    gone = [identity for identity in before if identity not in after]
    fresh = [identity for identity in after if identity not in before]
    names = {identity: after.get(identity, site) for identity, site in before.items()}
    for was, now in _most_alike(gone, fresh, _profiles(old), _profiles(new)):
        names[was] = after[now]
    return MatchedSites(
        old=tuple(names[_identity(site)] for site in old.sites),
        new=tuple(after[_identity(site)] for site in new.sites),
    )


def _identity(site: Site) -> _Identity:
    return site.file, site.function, site.text, site.module


def _places(sites: Iterable[Site]) -> dict[_Identity, Site]:
    """Return the last site of each identity: of equal lines, the last one may be the added one."""
    return {_identity(site): site for site in sorted(sites)}


def _profiles(work: StepWork) -> dict[_Identity, _Profile]:
    profiles: dict[_Identity, _Profile] = defaultdict(Counter)
    for one in work.operations:
        profiles[_identity(work.sites[one.site])][one.phase, one.name] += one.count
    return profiles


def _most_alike(
    gone: list[_Identity],
    fresh: list[_Identity],
    before: dict[_Identity, _Profile],
    after: dict[_Identity, _Profile],
) -> Iterator[tuple[_Identity, _Identity]]:
    """Yield pairs of an old and a new site, each site once, the most similar pairs first."""
    scored = sorted(
        (-likeness, i, j)
        for i, was in enumerate(gone)
        for j, now in enumerate(fresh)
        if (likeness := _likeness(was, now, before[was], after[now])) > 0
    )
    matched_old: set[int] = set()
    matched_new: set[int] = set()
    for _, i, j in scored:
        if i not in matched_old and j not in matched_new:
            matched_old.add(i)
            matched_new.add(j)
            yield gone[i], fresh[j]


def _likeness(was: _Identity, now: _Identity, before: _Profile, after: _Profile) -> float:
    """Return how much two sites share: up to 4 by their names, and up to 2 by their operations."""
    names = sum(one == other for one, other in zip(was, now, strict=True))
    shared, either = (before & after).total(), (before | after).total()
    return names + (2 * shared / either if either else 0.0)


# The values of the work gate: what changed in a step, where, and the verdict on it.


ChangeKind = Literal[
    "operation", "host_read", "collective", "memory", "calls", "autograd", "compilation", "model"
]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A site with how many more (fewer if negative) of the changed thing are there."""

    site: Site
    count: int


class WorkChange(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between two counted steps.

    ``before`` and ``after`` are its number; ``bytes`` and ``flops`` are how many more it moves and
    computes. Each is negative for less.
    """

    kind: ChangeKind
    what: str  # "aten.clone (float32)", "peak memory", "all_reduce of 4,096 bytes (float32)"
    # Of the operations or collectives that are more or fewer; empty: this is not about their number
    name: str = ""  # "aten.clone", "all_reduce"
    dtypes: tuple[str, ...] = ()  # two, before and after, if it is their dtype that changed
    group: int | None = None  # ranks of a collective's group; None: all ranks
    unit: str = ""  # of before and after: "" for a number, "bytes"
    phase: Phase | None = None
    moved_from: Phase | None = None  # the same work was in this phase before
    before: int
    after: int
    bytes: int = 0
    flops: int = 0
    places: tuple[Place, ...] = ()  # where it changed most comes first
    detail: str = ""  # the reason of a graph break


class WorkVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the work of a case.

    ``options`` are the changed options of the suite ("ddp.bucket_cap_mb: 25 → 5"), with their line
    in its file where it is known. ``lines`` are those that were edited and do more than before.
    """

    outcome: Outcome
    reason: str  # one sentence, without a remedy
    changes: tuple[WorkChange, ...] = ()  # what costs most comes first
    options: tuple[str, ...] = ()
    lines: tuple[Site, ...] = ()  # what costs most comes first


class CountedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case with the counts of its step, or why they could not be made."""

    case: Case
    work: StepWork | None = None  # of rank 0
    stored: StepWork | None = None  # what it is compared with; None: nothing is stored
    failure: str | None = None
    verdict: WorkVerdict | None = None
    saved: str | None = None  # the file that has the counts from now on; None: they were not stored


# Amounts of work by what it is and by site, and the places where an amount changed.


Key = TypeVar("Key", bound=Hashable)


class Amount(msgspec.Struct, frozen=True, order=True):
    """A number of things, with the bytes that they move and the FLOPs that they compute."""

    count: int = 0
    bytes: int = 0
    flops: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.count + other.count, self.bytes + other.bytes, self.flops + other.flops)

    def __neg__(self) -> Amount:
        return Amount(-self.count, -self.bytes, -self.flops)

    def __sub__(self, other: Amount) -> Amount:
        return self + -other

    def __bool__(self) -> bool:
        return self != _NOTHING


_NOTHING = Amount()
BySite = Mapping[Site, Amount]


def amounts_by_site(items: Iterable[tuple[Key, Site, Amount]]) -> dict[Key, dict[Site, Amount]]:
    """Return the amounts of each key, by site."""
    table: dict[Key, dict[Site, Amount]] = defaultdict(dict)
    for key, site, amount in items:
        table[key][site] = table[key].get(site, _NOTHING) + amount
    return dict(table)


def total(by_site: BySite) -> Amount:
    """Return the amount over all sites."""
    return sum(by_site.values(), _NOTHING)


def amount_of(operation: OperationCount) -> Amount:
    """Return the number of an operation, its bytes and its FLOPs."""
    moved = operation.read + operation.written
    return Amount(operation.count, moved, operation.flops)


def total_of(work: StepWork) -> Amount:
    """Return the amount over all operations of a step."""
    return sum(map(amount_of, work.operations), _NOTHING)


def changed_places(before: BySite, after: BySite, change: Amount) -> tuple[Place, ...]:
    """Return the sites whose amount changed in the direction of ``change``, the most first."""
    deltas = {
        site: after.get(site, _NOTHING) - before.get(site, _NOTHING)
        for site in before.keys() | after.keys()
    }
    if change < _NOTHING:
        found = sorted((delta, site) for site, delta in deltas.items() if delta < _NOTHING)
    else:
        found = sorted((-delta, site) for site, delta in deltas.items() if delta > _NOTHING)
    return tuple(Place(site=site, count=deltas[site].count) for _, site in found)


PhaseKey = TypeVar("PhaseKey", bound=tuple[Any, ...])  # the phase, the name, and what else differs


def moved_keys(deltas: Mapping[PhaseKey, Amount]) -> list[tuple[PhaseKey, PhaseKey]]:
    """Return the keys that differ in their phase only, and between which as much moved: from, to.

    Reads of an optimizer are on the host, and those of other phases are not: none moves.
    """
    found: list[tuple[PhaseKey, PhaseKey]] = []
    movable = [key for key in deltas if key[0] != "optimizer" or key[1] not in HOST_READS]
    for _, group in itertools.groupby(sorted(movable, key=_but_phase), key=_but_phase):
        keys = sorted(group, key=lambda key: PHASES.index(key[0]))
        more = [key for key in keys if deltas[key].count > 0]
        for was in (key for key in keys if deltas[key].count < 0):
            now = next((key for key in more if deltas[key] == -deltas[was]), None)
            if now is not None:
                more.remove(now)
                found.append((was, now))
    return found


def _but_phase(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return key[1:]


# The lines that were edited since the stored counts, and that do more than before.
#
# An operation is counted where it happens, which is not always where the code was edited: a second
# ``module(tokens)`` doubles the work of every line of the model. A line that the stored version of
# the code does not have is the edit itself.


_PACKAGE = "ddp_perf/"


def edited_lines(
    old: StepWork, new: StepWork, *, package_differs: bool = False
) -> tuple[Site, ...]:
    """Return the new and edited lines that do more than the old ones in their places.

    The one with most additional FLOPs comes first, then bytes, then numbers of anything. A renamed
    line, which does as much as before, is none of them. A line of this package runs anew for an
    edit of the user's, too: it is returned only if the package differs, and no other line is there.
    """
    lines = _grown_lines(old, new)
    users = tuple(line for line in lines if not line.file.startswith(_PACKAGE))
    return users or (lines if package_differs else ())


def _grown_lines(old: StepWork, new: StepWork) -> tuple[Site, ...]:
    known = {(site.file, site.text) for site in old.sites}
    matched = match_sites(old, new)
    before = _all(old, matched.old)
    found: dict[tuple[str, str], tuple[Amount, Site]] = {}
    for site, now in _all(new, matched.new).items():
        line = site.file, site.text
        more, first = found.get(line, (Amount(), site))
        if line not in known:
            found[line] = more + now - before.get(site, Amount()), first
    grown = [
        ((more.flops, more.bytes, more.count), site)
        for more, site in found.values()
        if max(more.flops, more.bytes, more.count) > 0
    ]
    return tuple(site for _, site in sorted(grown, reverse=True))


def _all(work: StepWork, sites: Sequence[Site]) -> dict[Site, Amount]:
    """Return all that each site does, of whatever kind. ``sites`` stand for those of the work."""
    return amounts_by_site(("", sites[at], amount) for at, amount in _amounts(work)).get("", {})


def _amounts(work: StepWork) -> Iterator[tuple[int, Amount]]:
    for operation in work.operations:
        yield operation.site, amount_of(operation)
    for collective in work.collectives:
        yield collective.site, Amount(1, collective.bytes)
    for kept in work.kept:
        yield kept.site, Amount(0, max(kept.bytes, 0))
    for call in (*work.calls, *work.callers):
        yield call.site, Amount(call.count)
    if work.compilation is not None:
        for one in (*work.compilation.breaks, *work.compilation.recompilations):
            yield one.site, Amount(1)


# The rule of host reads: the operations for whose result the host of a GPU waits.


_TRAINER = "ddp_perf/worker/steps/trainer.py"


def is_host_read(counted: OperationCount, site: Site) -> bool:
    """Return whether the host waits for a GPU there, by an operation of HOST_READS.

    It does not for numbers that are on the host anyway: those of the optimizer, such as Adam's
    steps, and the parameters that DDP's reducer counts, in int32 during the Trainer's backward. The
    scaler of fp16 reads from the GPU in the Trainer's own line of the optimizer phase.
    """
    if counted.name not in HOST_READS:
        return False
    is_trainers = site.file == _TRAINER
    if counted.phase == "optimizer":
        return is_trainers
    return not (is_trainers and counted.phase == "backward" and counted.dtype == "int32")


def host_reads(work: StepWork) -> int:
    """Return the number of host reads of a step."""
    return sum(one.count for one in work.operations if is_host_read(one, work.sites[one.site]))
