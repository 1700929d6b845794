"""The changes between two environments that can be made one by one: packages, and variables.

Distributions that must move together are one change: those that share a directory (the parts of
``nvidia``), and those that contradict each other's requirements unless both move (torch with the
triton that it pins). A change that requires another one, but not the reverse, takes it along.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ddp_perf.duel.environments.differences import DistributionChange
from ddp_perf.duel.inventory import Distribution


class Factor(msgspec.Struct, frozen=True, kw_only=True):
    """One change from A to B: of distributions, which are linked in, or of a variable."""

    name: str  # unique
    label: str  # for people
    links: tuple[tuple[str, str], ...] = ()  # a name that Python imports by, and its path in B
    takes: tuple[str, ...] = ()  # names of the factors without which it cannot be made
    variable: str | None = None
    value: str | None = None  # of the variable in B; None: it is unset


def variable_factors(a: Mapping[str, str], b: Mapping[str, str]) -> list[Factor]:
    """Return a factor for each variable that differs."""
    return [
        Factor(
            name=f"env:{name}",
            label=f"{name}: {a.get(name, 'unset')} → {b.get(name, 'unset')}",
            variable=name,
            value=b.get(name),
        )
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]


def package_factors(
    changes: Sequence[DistributionChange], python: str
) -> tuple[list[Factor], list[str]]:
    """Return the factors of the distributions, and why each other one cannot be moved.

    ``python`` is the version of the interpreter, by which requirements apply or not.
    """
    movable = {one.name: one for one in changes if _obstacle(one) is None}
    fixed = [f"{one.label}: {why}" for one in changes if (why := _obstacle(one)) is not None]
    needs = {name: _needs(change, movable, python) for name, change in movable.items()}
    for left, right in _shared(movable):
        needs[left].add(right)
        needs[right].add(left)
    reached = {name: _reachable(name, needs) for name in movable}
    units = {
        name: min(other for other in reached[name] if name in reached[other]) for name in movable
    }
    return [_factor(unit, movable, units, reached) for unit in sorted(set(units.values()))], fixed


def taken_along(chosen: Iterable[Factor], factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """Return the chosen factors with those that they take along, in the order of ``factors``."""
    chosen = list(chosen)
    names = {factor.name for factor in chosen} | {name for f in chosen for name in f.takes}
    return tuple(factor for factor in factors if factor.name in names)


def _obstacle(change: DistributionChange) -> str | None:
    """Return why a distribution of B cannot be put in front of those of A, or None."""
    if change.after is None:
        return "it cannot be hidden from Python"
    if not change.after.entries:
        return "it has no files to import (an editable install?)"
    return None


def _needs(
    change: DistributionChange, movable: Mapping[str, DistributionChange], python: str
) -> set[str]:
    """Return the other distributions that must move if this one does: it is B's, theirs are A's."""
    after = change.after
    assert after is not None  # it is movable
    needs = {change.name}
    for name, requirement in _requirements(after, python):
        if name in movable and not _satisfied(requirement, movable[name].before):
            needs.add(name)
    for name, other in movable.items():
        for required, requirement in _requirements(other.before, python):
            if required == change.name and not _satisfied(requirement, after):
                needs.add(name)
    return needs


def _requirements(
    distribution: Distribution | None, python: str
) -> Iterator[tuple[str, Requirement]]:
    environment = {
        "extra": "",
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
    }
    for text in distribution.requires if distribution is not None else ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # of an old packaging tool: pip ignores it, too
            continue
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield str(canonicalize_name(requirement.name)), requirement


def _satisfied(requirement: Requirement, distribution: Distribution | None) -> bool:
    return distribution is not None and requirement.specifier.contains(
        distribution.version, prereleases=True
    )


def _shared(movable: Mapping[str, DistributionChange]) -> Iterator[tuple[str, str]]:
    """Yield pairs of distributions that have a name in common: a link to it moves both."""
    first: dict[str, str] = {}
    for name, change in movable.items():
        for distribution in (change.before, change.after):
            for entry in distribution.entries if distribution is not None else ():
                if first.setdefault(entry, name) != name:
                    yield first[entry], name


def _reachable(name: str, needs: Mapping[str, set[str]]) -> set[str]:
    reached, waiting = {name}, [name]
    while waiting:
        new = needs[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def _factor(
    unit: str,
    movable: Mapping[str, DistributionChange],
    units: Mapping[str, str],
    reached: Mapping[str, set[str]],
) -> Factor:
    members = [name for name in movable if units[name] == unit]
    return Factor(
        name=unit,
        label=", ".join(movable[name].label for name in members),
        links=tuple(link for name in members for link in _links(movable[name].after)),
        takes=tuple(sorted({units[name] for name in reached[unit]} - {unit})),
    )


def _links(distribution: Distribution | None) -> Iterator[tuple[str, str]]:
    assert distribution is not None  # it is movable
    metadata = distribution.metadata_entry
    for entry in sorted(distribution.entries | ({metadata} if metadata else set())):
        yield entry, os.fspath(Path(distribution.location, entry))
