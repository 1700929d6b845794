"""End sessions by signals at random moments, and let the same command run again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults.ends import FAULTS, Project, try_end
from tests.faults.matrix import Tried


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Yield so many trials, of each signal in turn."""
    with tempfile.TemporaryDirectory() as name:
        project = Project(Path(name) / "project")
        for number in range(trials):
            yield try_end(project, FAULTS[number % len(FAULTS)], seed=seed + number)
