"""The execution of a plan: one launch after the other, with nothing beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.core.measurement import Measurement
from ddp_perf.session.measure.bench import Bench, LaunchOutcome


def run_plan(
    plan: Sequence[LaunchRequest],
    bench: Bench,
    *,
    measured: Mapping[str, Measurement],
    on_round: Callable[[dict[str, Measurement]], None],
) -> dict[str, Measurement]:
    """Run the plan, and return ``measured``, by case id, with its launches added.

    A case that failed once is not launched again. ``on_round`` gets the measurements after every
    round, and also if the run is interrupted, so that no finished launch is lost. Raises
    LaunchError if ranks cannot be started.
    """
    measured = dict(measured)
    waiting = list(plan)
    try:
        while waiting:
            request = waiting.pop(0)
            outcome = bench.launcher.launch(request)
            measured[request.case.id] = _with(measured[request.case.id], outcome)
            if isinstance(outcome, LaunchFailure):
                waiting = [other for other in waiting if other.case.id != request.case.id]
            bench.progress.launched(request, outcome, _left_s(waiting, measured))
            if not waiting or waiting[0].round != request.round:
                on_round(measured)
    except BaseException:
        on_round(measured)
        raise
    return measured


def _with(measurement: Measurement, outcome: LaunchOutcome) -> Measurement:
    launches, failures = measurement.launches, measurement.failures
    if isinstance(outcome, LaunchFailure):
        failures = (*failures, outcome)
    else:
        launches = (*launches, outcome)
    return Measurement(case=measurement.case, launches=launches, failures=failures)


def _left_s(waiting: Sequence[LaunchRequest], measured: Mapping[str, Measurement]) -> float | None:
    """Estimate the seconds left from the newest launch of each waiting case.

    None before every waiting case has a launch.
    """
    launches = [measured[request.case.id].launches for request in waiting]
    return sum(done[-1].wall_s for done in launches) if all(launches) else None
