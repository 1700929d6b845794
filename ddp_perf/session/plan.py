"""The order of launches: cases interleaved, so that a drift of the machine hits all alike."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection
from ddp_perf.core.launch_request import LaunchRequest
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.session.artifacts import hang_directory

_LAUNCH_S = 0.3  # what a launch costs beyond its steps, roughly; only for the estimate


def interleave(
    turns: Sequence[tuple[Case, int]],
    import_paths: Sequence[str],
    injections: Sequence[Injection] = (),
    *,
    start: int = 0,
    root: Path | None = None,
) -> list[LaunchRequest]:
    """A B C A B C …, each case as often as ``turns`` says, with the injections it can have.

    ``start``: the number of the first round. ``root``: under whose artifacts/ ranks that hang
    leave their flight records; None: nowhere.
    """
    return [
        LaunchRequest(
            case=case,
            round=start + round_,
            import_paths=tuple(import_paths),
            injections=tuple(i for i in injections if i.applies_to(case)),
            records=str(hang_directory(root, case)) if root is not None else None,
        )
        for round_ in range(max((launches for _, launches in turns), default=0))
        for case, launches in turns
        if round_ < launches
    ]


def estimate_s(plan: Sequence[LaunchRequest], baseline: Baseline) -> float | None:
    """Seconds that the plan should take by the baseline; None with a case it does not know."""
    times = [launch_s(request.case, baseline) for request in plan]
    known = [time for time in times if time is not None]
    return sum(known) if len(known) == len(times) else None


def launch_s(case: Case, baseline: Baseline) -> float | None:
    """Seconds that a launch of the case took in the baseline, roughly; None: not known."""
    stored = baseline.cases.get(case.id)
    if stored is None or not stored.sessions:
        return None
    steps = [value for session in stored.sessions for value in session.values(STEP_TIME.name)]
    return statistics.median(steps) * case.schedule.steps + _LAUNCH_S
