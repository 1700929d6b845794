"""The search for the commit of a red case, between the reference and today."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from ddp_perf.core.case import Case
from ddp_perf.core.culprit import Culprit
from ddp_perf.core.environment import Environment
from ddp_perf.duel.bisect.blame import culprit_of
from ddp_perf.duel.bisect.commits import commit_line
from ddp_perf.duel.bisect.find import find_commit
from ddp_perf.duel.bisect.log import open_log
from ddp_perf.duel.bisect.opening import open_commit
from ddp_perf.duel.sources import Project
from ddp_perf.settle.references import edits_beyond
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.code_state import CodeState

_CONFIDENCE = 0.95


def is_searchable(case: Case, good: str, today: CodeState, project: Project) -> bool:
    """Return whether commits lie between, and no uncommitted edit may touch the case."""
    return not (today.commit.startswith(good) or edits_beyond(case, today, project))


def find_culprit(
    case: Case,
    good: str,
    today: CodeState,
    project: Project,
    capacity: Capacity,
    environment: Environment,
    *,
    until: float,
    say: Callable[[str], None],
) -> Culprit | None:
    """Return the commit after ``good`` that made the case slower, or None if it is not found.

    It searches until ``time.monotonic()`` is ``until``. The commits must be searchable. Raises
    DdpPerfError.
    """
    line = commit_line(project.root, good, today.commit)
    say(f"searching the commit after {good[:8]} that made {case.id} slower")
    opener = functools.partial(
        open_commit, root=project.root, case_id=case.id, capacity=capacity, on_progress=say
    )
    with contextlib.closing(open_log(line, case.id, environment)) as log:
        result = find_commit(
            line, opener, log, confidence=_CONFIDENCE, until=until, on_progress=lambda text: None
        )
    return culprit_of(result)
