"""Edits of the user's tree while it is measured: its launches before and after do not compare."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ddp_perf.duel.sources import imported_by
from ddp_perf.duel.values import PreparedSide, SideCase
from ddp_perf.errors import SideError


class WatchedTree:
    """The files that ranks import or run from the user's tree, as they were at the beginning.

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
    own = [case.of(side.side.name) for case in cases]
    found = imported_by(own, side.import_paths, side.root)
    return {path for imported in found.values() for path in imported.files}


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:  # a module that is not there, and may be added
        return None
