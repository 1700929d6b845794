"""Amounts of work by what it is and by site, and the places where an amount changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import msgspec

from ddp_perf.core.work import Site
from ddp_perf.work.values import Place

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
