"""Sides that are the tree with other versions of packages: ``torch==2.11.0,numpy==2.1.0``."""

from __future__ import annotations

import re
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ddp_perf.errors import SideError

_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(\[[\w.,-]+\])?==([A-Za-z0-9][\w.+!]*)")


class Requirement(NamedTuple):
    """One exact version of a package."""

    name: str
    extras: str  # "[dev]" or ""
    version: str

    def __str__(self) -> str:
        return f"{self.name}{self.extras}=={self.version}"

    def is_met_by(self, version: str) -> bool:
        """Return whether an installed version is this one. "2.11.0+cpu" is a "2.11"."""
        return SpecifierSet(f"=={self.version}").contains(version, prereleases=True)


def parse_requirements(text: str) -> list[Requirement]:
    """Return the requirements in the order of their names. Raises SideError."""
    requirements: dict[str, Requirement] = {}
    for part in re.split(r",(?![^\[]*\])", text):
        match = _REQUIREMENT.fullmatch(part.strip())
        if match is None:
            raise SideError(
                f"{text}: {part.strip()!r} is not an exact version; write torch==2.11.0, or"
                " torch==2.11.0,numpy==2.1.0"
            )
        name = canonicalize_name(match[1])
        if name in requirements:
            raise SideError(f"{text}: {name} has two versions; remove one")
        requirements[name] = Requirement(name, match[2] or "", match[3])
    return [requirements[name] for name in sorted(requirements)]
