"""The versions of installed packages, read once: each inner session would read them for 0.2 s."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from ddp_perf.system.packages import versions_behind


def versions_once(modules: Iterable[str]) -> dict[str, str]:
    """Return what ``versions_behind`` returned for these modules the first time."""
    return dict(_versions(frozenset(modules)))


@functools.cache
def _versions(modules: frozenset[str]) -> dict[str, str]:
    return versions_behind(modules)
