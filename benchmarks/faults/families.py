"""End the driver or the server of sessions with real ranks, at random moments."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults.families import FAULTS, make_project, try_family
from tests.faults.matrix import Tried


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Yield a trial for 25 of those that are asked for, of each fault in turn: each takes long."""
    return itertools.islice(_all(seed), trials // 25)


def _all(seed: int) -> Iterator[Tried]:
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "project"
        whole_s = make_project(project)
        for number, fault in enumerate(itertools.cycle(FAULTS), start=seed):
            if (tried := try_family(project, whole_s, fault, number)) is not None:
                yield tried
