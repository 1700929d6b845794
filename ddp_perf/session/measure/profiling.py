"""``--ddp-profile``: one more launch of each case, with torch.profiler after its steps.

Its figures are not used, so that a profiler never runs in a judged launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, Profiling
from ddp_perf.errors import TraceError
from ddp_perf.session.measure.artifacts import profile_directory
from ddp_perf.session.measure.bench import Bench
from ddp_perf.session.measure.rounds import interleave
from ddp_perf.session.result import CaseProfile
from ddp_perf.traces.analysis import analyse_traces
from ddp_perf.traces.merge import merge_traces

MERGED = "merged.json.gz"


def profile_cases(cases: Sequence[Case], steps: int, bench: Bench) -> dict[str, CaseProfile]:
    """Profile one more launch of each case; return the profiles by case id.

    The traces are written under the root's artifacts/.
    Raises LaunchError if ranks cannot be started. A launch that fails, or traces that cannot be
    read, become the problem of that case.
    """
    plan = interleave([(case, 1) for case in cases], bench)
    why = f"one more launch of each case, with {steps} profiled steps"
    bench.progress.extend(plan, why, judged=False)
    return {request.case.id: _profile(request, steps, bench) for request in plan}


def _profile(request: LaunchRequest, steps: int, bench: Bench) -> CaseProfile:
    directory = profile_directory(bench.root, request.case)
    profiling = Profiling(steps=steps, directory=str(directory))
    request = msgspec.structs.replace(request, profiling=profiling)
    outcome = bench.launcher.launch(request)
    bench.progress.launched(request, outcome)
    if isinstance(outcome, LaunchFailure):
        return CaseProfile(directory=str(directory), problem=str(outcome))
    if (why := outcome.why_missing("profile")) is not None:
        return CaseProfile(directory=str(directory), problem=why)
    files = {rank: Path(profiling.file(rank)) for rank in range(request.case.world_size)}
    try:
        merge_traces(files, directory / MERGED)
        analysis = analyse_traces(list(files.values()))
    except (TraceError, OSError) as error:
        return CaseProfile(directory=str(directory), problem=str(error))
    return CaseProfile(directory=str(directory), analysis=analysis)
