"""End sessions and experiments by signals at random moments, and let the same command run again.

Of 50 trials 31 are pytest sessions whose launches are played, every tenth with its report; the
others are experiments.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults import ends
from tests.faults.matrix import Tried
from tests.faults.policies import POLICIES, SIGNALS, try_policy


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Yield so many trials, in which a signal came before the end, of each fault in turn."""
    experiments = trials * 19 // 50
    for kind, number in {_sessions: trials - experiments, _experiments: experiments}.items():
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
