"""Rounds of launches: their order, the time of one, and their execution."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import TIMED_ON_GPU_S, Case, Tier
from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.session import TYPICAL_STEP
from ddp_perf.errors import BaselineError
from ddp_perf.render.units import counted, describe_duration
from ddp_perf.session.measure.artifacts import hang_directory
from ddp_perf.session.measure.bench import Bench, LaunchOutcome
from ddp_perf.system.capacity import Capacity

# The seconds of a launch on GPUs, if no session has measured them yet. Those beyond its timed steps
# are a guess: CUDA's context, NCCL's communicator and the first kernels, and the shortest extra
# warm-up after which `worker.timing.warm_up` calls a GPU steady.
_LEAST_ON_GPU_S = 5.0 + 3.5 + TIMED_ON_GPU_S
_LEAST_S: dict[Tier, float] = {"cpu": 0.0, "gpu": _LEAST_ON_GPU_S}  # of one never timed


def interleave(
    turns: Sequence[tuple[Case, int]], bench: Bench, *, start: int = 0, nodes: Sequence[str] = ()
) -> list[LaunchRequest]:
    """Plan launches in the order A B C A B C …; ``turns`` gives the number for each case.

    Each case gets the injections that apply to it. ``start`` is the number of the first round.
    With ``nodes`` each round launches every case once on each of them. The next round begins with
    the next node, so that none of them is always measured first.
    """
    return [
        LaunchRequest(
            case=case,
            round=start + round_,
            node=node,
            import_paths=bench.import_paths,
            injections=tuple(i for i in bench.injections if i.applies_to(case)),
            records=str(hang_directory(bench.root, case)),
        )
        for round_ in range(max((launches for _, launches in turns), default=0))
        for node in _rotated(nodes, start + round_)
        for case, launches in turns
        if round_ < launches
    ]


def _rotated(nodes: Sequence[str], places: int) -> Sequence[str | None]:
    """Return the nodes from another one on; a single None if there is none to name."""
    first = places % len(nodes) if nodes else 0
    return [*nodes[first:], *nodes[:first]] or [None]


def launch_times(cases: Iterable[Case], baseline: Baseline) -> dict[str, float]:
    """Return the seconds of a launch in the baseline, by id of each case that it times."""
    times = {case.id: launch_s(case, baseline) for case in cases}
    return {case_id: time for case_id, time in times.items() if time is not None}


def launch_s(case: Case, baseline: Baseline) -> float | None:
    """Return the seconds that a launch of the case took in the baseline, or None if it has none."""
    stored = baseline.cases.get(case.id)
    if stored is None:
        return None
    steps = [value for session in stored.sessions for value in session.values(TYPICAL_STEP)]
    if not steps:
        return None
    step_s = statistics.median(steps)
    overhead_s = statistics.median(session.overhead_s for session in stored.sessions)
    schedule = case.schedule
    count = schedule.steps_on_gpu(step_s) if case.tier == "gpu" else schedule.steps
    return step_s * count + overhead_s


def session_length(cases: Sequence[Case], baselines: Mapping[Tier, Baseline]) -> str:
    """Return the launches of a session, and how long the stored sessions show that they take.

    A launch on GPUs that was never timed counts with what it takes at least, by an assumption that
    the text states; one on CPUs does not count.
    """
    launches = sum(case.schedule.launches for case in cases)
    suites = len({case.suite for case in cases})
    untimed = [case for case in cases if launch_s(case, baselines[case.tier]) is None]
    total_s = launches_s(cases, baselines)
    what = f"{counted(launches, 'launch')} of {counted(suites, 'suite')}"
    if not total_s:
        return f"{what}, for how long a stored session will show"
    length = f"{what}, {'at least' if untimed else 'about'} {describe_duration(total_s)}"
    if assumed := sum(case.schedule.launches for case in untimed if case.tier == "gpu"):
        length += f" ({assumed} were never timed: {_LEAST_ON_GPU_S:g} s each is assumed)"
    return length


def further_length(settle_s: float, audit_s: float) -> str:
    """Return how much longer a session may take: to settle, and for its audit; "": no longer."""
    parts = [f"settling: up to {describe_duration(settle_s)} more"] if settle_s else []
    if audit_s:
        parts.append(f"the audit of the gate: up to {describe_duration(audit_s)} more")
    return "".join(f"; {part}" for part in parts)


def audit_length(
    cases: Iterable[Case], baselines: Mapping[Tier, Baseline], *, settle_s: float
) -> float:
    """Return the most seconds that the audit of a session of these cases takes; 0: it has none.

    Whichever case is drawn: that with the longest launches, and its second stage. Only a case that
    was timed before has an audit.
    """
    timed = ((case, launch_s(case, baselines[case.tier])) for case in cases)
    known = [case.schedule.launches * seconds for case, seconds in timed if seconds is not None]
    return max(known) + settle_s if known else 0.0


def launches_s(cases: Iterable[Case], baselines: Mapping[Tier, Baseline]) -> float:
    """Return the seconds of all launches of the cases, as ``session_length`` counts them."""
    return sum(
        case.schedule.launches * expected_launch_s(case, baselines[case.tier]) for case in cases
    )


def expected_launch_s(case: Case, baseline: Baseline) -> float:
    """Return the seconds of a launch in the baseline; if it was never timed, what is assumed."""
    seconds = launch_s(case, baseline)
    return _LEAST_S[case.tier] if seconds is None else seconds


def stored_baseline(store: BaselineStore, capacity: Capacity, tier: Tier) -> Baseline:
    """Return what is stored of the machine, of which only the time of a launch is wanted.

    So a broken file is as good as none.
    """
    key = capacity.accelerator_key(tier)
    try:
        return store.load(key)
    except BaselineError:
        return Baseline(accelerator=key, units={}, cases={})


def run_plan(
    plan: Sequence[LaunchRequest],
    bench: Bench,
    *,
    measured: Mapping[str, Measurement],
    on_round: Callable[[dict[str, Measurement]], None],
) -> dict[str, Measurement]:
    """Run the plan, and return ``measured``, by case id, with its launches added.

    A case that failed once is not launched again; of nodes that are measured one by one, not on
    that node. ``on_round`` gets the measurements after every
    round, and also if the run is interrupted, so that no finished launch is lost. Raises
    LaunchError if ranks cannot be started.
    """
    measured = dict(measured)
    waiting = list(plan)
    try:
        while waiting:
            request = waiting.pop(0)
            outcome = _on_its_node(bench.launcher.launch(request), request)
            measured[request.case.id] = with_outcome(measured[request.case.id], outcome)
            if isinstance(outcome, LaunchFailure):
                waiting = [other for other in waiting if _turn(other) != _turn(request)]
            bench.progress.launched(request, outcome)
            if not waiting or waiting[0].round != request.round:
                on_round(measured)
    except BaseException:
        on_round(measured)
        raise
    return measured


def _turn(request: LaunchRequest) -> tuple[str, str | None]:
    return request.case.id, request.node


def _on_its_node(outcome: LaunchOutcome, request: LaunchRequest) -> LaunchOutcome:
    """Return the outcome with the name of the node that the request names."""
    return outcome if request.node is None else replace(outcome, node=request.node)


def with_outcome(measurement: Measurement, outcome: LaunchOutcome) -> Measurement:
    """Return the measurement with a finished launch, or a failed one."""
    launches, failures = measurement.launches, measurement.failures
    if isinstance(outcome, LaunchFailure):
        failures = (*failures, outcome)
    else:
        launches = (*launches, outcome)
    return replace(measurement, launches=launches, failures=failures)
