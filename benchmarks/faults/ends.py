"""End sessions and experiments by signals at random moments, and let the same command run again.

Of 50 trials 30 are pytest sessions whose launches are played, every tenth with its report; 19 are
experiments; and one is a session with real ranks.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults import ends, families
from tests.faults.matrix import Tried
from tests.faults.policies import POLICIES, SIGNALS, try_policy


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Yield so many trials, in which a signal came before the end, of each fault in turn."""
    many = {_experiments: trials * 19 // 50, _families: trials // 50}
    for kind, number in {_sessions: trials - sum(many.values()), **many}.items():
        yield from itertools.islice(kind(seed), number)


def _sessions(seed: int) -> Iterator[Tried]:
    with tempfile.TemporaryDirectory() as name:
        project = ends.StoredProject(Path(name) / "project")
        for number, fault in enumerate(itertools.cycle(ends.FAULTS), start=seed):
            more = (ends.REPORT,) if number // len(ends.FAULTS) % 10 == 0 else ()
            if (tried := ends.try_end(project, fault, number, *more)) is not None:
                yield tried


def _experiments(seed: int) -> Iterator[Tried]:
    each = itertools.product(POLICIES, SIGNALS)
    for number, (policy, signal) in enumerate(itertools.cycle(each), start=seed):
        yield try_policy(policy, signal, number)


def _families(seed: int) -> Iterator[Tried]:
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "project"
        whole_s = families.make_project(project)
        for number, fault in enumerate(itertools.cycle(families.FAULTS), start=seed):
            if (tried := families.try_family(project, whole_s, fault, number)) is not None:
                yield tried
