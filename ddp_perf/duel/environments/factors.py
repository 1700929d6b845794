"""The changes between two environments that can be made one by one, and environments with some."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ddp_perf.core.case import Case
from ddp_perf.core.subject import DATA_FOLDER
from ddp_perf.duel.inventory import Distribution, Inventory
from ddp_perf.duel.sides.virtual_environment import requirements_in
from ddp_perf.duel.values import PreparedSide
from ddp_perf.errors import SideError

# The distributions in which two environments differ, by version or by the content of files.


class DistributionChange(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution that differs. ``before`` is that of A, ``after`` that of B; None: absent."""

    name: str
    before: Distribution | None
    after: Distribution | None

    @property
    def label(self) -> str:
        """The change in words: ``numpy 1.26.4 → 2.0.1``."""
        if self.before is None:
            assert self.after is not None  # else it is in neither
            return f"{self.name} {self.after.version} (absent before)"
        if self.after is None:
            return f"{self.name} {self.before.version} → absent"
        if self.before.version == self.after.version:
            return f"{self.name} {self.after.version} (other files)"
        return f"{self.name} {self.before.version} → {self.after.version}"


def changed_distributions(a: Inventory, b: Inventory) -> list[DistributionChange]:
    """Return the distributions whose version or files differ, by name."""
    changes = []
    for name in sorted(a.distributions.keys() | b.distributions.keys()):
        before, after = a.distributions.get(name), b.distributions.get(name)
        if before is None or after is None or _differ(before, after):
            changes.append(DistributionChange(name=name, before=before, after=after))
    return changes


def _differ(a: Distribution, b: Distribution) -> bool:
    """Return True if the versions differ, or a file that both installers recorded, or did not.

    Files are read, since a person who edits an installed file leaves its recorded hash as it was.
    """
    if a.location == b.location:
        return False
    if a.version != b.version or set(a.modules) != set(b.modules):
        return True
    return any(_differs(Path(a.location, name), Path(b.location, name)) for name in a.modules)


def _differs(a: Path, b: Path) -> bool:
    if not (a.exists() and b.exists()):
        return a.exists() != b.exists()
    return not (os.path.samefile(a, b) or filecmp.cmp(a, b, shallow=False))


# The changes between two environments that can be made one by one: packages, and variables.
#
# Distributions that must move together are one change: those that share a directory (the parts of
# ``nvidia``), and those that contradict each other's requirements unless both move (torch with the
# triton that it pins). A change that requires another one, but not the reverse, takes it along.


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
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
    }
    for one in requirements_in(distribution.requires if distribution else (), environment):
        yield str(canonicalize_name(one.name)), one


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


# Hybrids: environment A with some changes of B, made without network and without an installation.
#
# A directory of links to the chosen distributions of B lies before those of A on PYTHONPATH. Both
# interpreters must have the same binary interface, since compiled modules are linked in, too.


def check_compatible(a: Inventory, b: Inventory) -> None:
    """Raise SideError if compiled modules of B do not fit the interpreter of A."""
    if a.abi != b.abi:
        raise SideError(
            f"Python {a.python} and {b.python} ({a.abi}, {b.abi}): packages of one cannot be moved"
            " to the other; make both environments with the same Python, or compare them as they"
            " are with ddp-perf duel"
        )


def make_hybrid(a: PreparedSide, factors: Sequence[Factor], directory: Path) -> PreparedSide:
    """Return side A with the factors of B, whose links are made in a new ``directory``.

    ddp_perf is linked there, too: its own directory may have other packages, which would be found
    before those of B.
    """
    directory.mkdir(parents=True)
    (directory / "ddp_perf").symlink_to(a.package / "ddp_perf")
    for factor in factors:
        for name, path in factor.links:
            (directory / name).symlink_to(path)
    environ = _changed(a.environ, factors)
    paths = [os.fspath(directory), environ.get("PYTHONPATH", "")]
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return msgspec.structs.replace(
        a, environ=environ, variables=_changed(a.variables, factors), package=directory
    )


def _changed(variables: Mapping[str, str], factors: Sequence[Factor]) -> dict[str, str]:
    """Return the variables with those of the factors, which set or unset them."""
    changed = dict(variables)
    for factor in factors:
        if factor.variable is not None:
            changed.pop(factor.variable, None)
            if factor.value is not None:
                changed[factor.variable] = factor.value
    return changed


def hybrid_case(case: Case, side: PreparedSide) -> Case:
    """Return the case with the variables of a side, which replace those of the suite."""
    given = {name: text for name, text in side.variables.items() if name != DATA_FOLDER}
    return msgspec.structs.replace(case, env={**case.env, **given})
