"""The sites of two versions of the code: which site of the old one is which of the new one.

Sites are no part of the verdict. They name the place of a change, so a line that was only renamed,
edited or moved must not look new.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from ddp_perf.core.work import Site, StepWork

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
