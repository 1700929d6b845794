"""The distributions in which two environments differ, by version or by the content of files."""

from __future__ import annotations

import filecmp
import os
from pathlib import Path

import msgspec

from ddp_perf.duel.inventory import Distribution, Inventory


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
