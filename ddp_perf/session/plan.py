"""The order of launches: cases interleaved, so that a drift of the machine hits all alike."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.launch.launcher import LaunchRequest

_LAUNCH_S = 0.3  # what a launch costs beyond its steps, roughly; only for the estimate


def interleave(
    cases: Sequence[Case], import_paths: Sequence[str], injections: Sequence[Injection] = ()
) -> list[LaunchRequest]:
    """A B C A B C …, each case as often as its schedule says, with the injections it can have."""
    rounds = max((case.schedule.launches for case in cases), default=0)
    return [
        LaunchRequest(
            case=case,
            round=round_,
            import_paths=tuple(import_paths),
            injections=tuple(i for i in injections if i.applies_to(case)),
        )
        for round_ in range(rounds)
        for case in cases
        if round_ < case.schedule.launches
    ]


def estimate_s(plan: Sequence[LaunchRequest], baseline: Baseline) -> float | None:
    """Seconds that the plan should take by the baseline; None with a case it does not know."""
    total = 0.0
    for request in plan:
        stored = baseline.cases.get(request.case.id)
        if stored is None or not stored.sessions:
            return None
        steps = [value for session in stored.sessions for value in session.values(STEP_TIME.name)]
        total += statistics.median(steps) * request.case.schedule.steps + _LAUNCH_S
    return total
