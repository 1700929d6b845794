"""The software beside the code: installed distributions, and all that they need."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


def versions_behind(modules: Iterable[str]) -> dict[str, str]:
    """Return the version of each distribution that the modules come from, and of what it needs.

    Modules that no distribution provides, such as those of the standard library, are left out.
    Optional requirements do not count.
    """
    providers = importlib.metadata.packages_distributions()
    waiting = [name for module in sorted({*modules}) for name in providers.get(module, ()) if name]
    versions: dict[str, str] = {}
    while waiting:
        name = str(canonicalize_name(waiting.pop()))
        if name in versions:
            continue
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if "Version" not in found.metadata:  # a removal that was interrupted left no metadata
            continue
        versions[name] = found.version
        waiting += _requirements(found)
    return dict(sorted(versions.items()))


def _requirements(found: importlib.metadata.Distribution) -> Iterable[str]:
    for text in found.requires or ():
        try:
            needed = Requirement(text)
        except InvalidRequirement:  # of an old package: pip refuses it as well
            continue
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield needed.name
