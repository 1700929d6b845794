"""The figures of cases that are measured once, and neither judged nor stored."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.core.measurement import Measurement
from ddp_perf.launch.launcher import Launcher
from ddp_perf.session.measure.bench import LaunchOutcome
from ddp_perf.session.measure.environment import check_runtime, describe_environment
from ddp_perf.session.measure.rounds import with_outcome
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.summary import summaries_of
from ddp_perf.system.capacity import Capacity


def measure_unjudged(
    cases: Sequence[Case],
    launcher: Launcher,
    capacity: Capacity,
    *,
    root: Path,
    on_launch: Callable[[LaunchRequest, LaunchOutcome], None],
) -> SuiteResult:
    """Launch the cases of one suite in turn, until all are done or a launch fails.

    ``root`` is where ranks import from, and where the measured code is checked out. Nothing is
    written. Raises LaunchError if ranks cannot be started.
    """
    tier, suite = cases[0].tier, cases[0].suite
    runtime = launcher.runtime(cases[0])
    check_runtime(tier, runtime, capacity.machine)
    environment = describe_environment(capacity, tier, runtime, root)
    began = datetime.datetime.now(datetime.timezone.utc)
    measured = {case.id: Measurement(case=case, launches=(), failures=()) for case in cases}
    for request in _plan(cases, root):
        outcome = launcher.launch(request)
        measured[request.case.id] = with_outcome(measured[request.case.id], outcome)
        on_launch(request, outcome)
        if isinstance(outcome, LaunchFailure):
            break
    return SuiteResult(
        suite=suite,
        tier=tier,
        date=began.isoformat(timespec="seconds"),
        environment=environment,
        machine=capacity.machine if tier == "gpu" else None,
        baseline_path="",
        alpha=0.0,  # nothing is judged
        measurements=measured,
        summaries={case_id: tuple(rows) for case_id, rows in summaries_of(measured).items()},
    )


def _plan(cases: Sequence[Case], root: Path) -> list[LaunchRequest]:
    """Return the launches in the order A B A B …."""
    return [
        LaunchRequest(case=case, round=round_, import_paths=(str(root),))
        for round_ in range(cases[0].schedule.launches)
        for case in cases
    ]
