"""Edits of the user's tree while it is measured: its launches before and after do not compare."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ddp_perf.duel.imports import imported_files
from ddp_perf.duel.values import PreparedSide, SideCase
from ddp_perf.errors import SideError


class WatchedTree:
    """The files that workloads import from the user's tree, as they were at the beginning.

    If the tree is on both sides, an edit changes both alike, and nothing is watched.
    """

    def __init__(self, a: PreparedSide, b: PreparedSide, cases: Sequence[SideCase]) -> None:
        watched = [side for side in (a, b) if side.side.kind != "revision" and a.root != b.root]
        self._before = {
            (side.side.name, side.side.label, path): _digest(path)
            for side in watched
            for path in _sources(side, cases)
        }

    def check(self) -> None:
        """Raise SideError if a file was edited since."""
        for (name, label, path), digest in self._before.items():
            if _digest(path) != digest:
                raise SideError(
                    f"side {name} ({label}): {path.name} was edited while it was measured, so"
                    " that its launches do not compare; run the duel again, or commit and name the"
                    " revision"
                )


def _sources(side: PreparedSide, cases: Sequence[SideCase]) -> set[Path]:
    modules = {case.of(side.side.name).workload.partition(":") for case in cases}
    return {
        path
        for module, colon, _ in modules
        if colon  # else it is a workload of ddp_perf
        for path in imported_files(module, (str(side.root),), side.root).files
    }


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:  # a module that is not there, and may be added
        return None
