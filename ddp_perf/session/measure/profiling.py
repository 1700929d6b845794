"""``--ddp-profile``: one more launch of each case, with torch.profiler after its steps.

Its figures are not used, so that a profiler never runs in a judged launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, Profiling
from ddp_perf.errors import TraceError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.session.measure.artifacts import profile_directory
from ddp_perf.session.measure.plan import interleave
from ddp_perf.session.measure.run import Progress
from ddp_perf.session.result import CaseProfile
from ddp_perf.traces.analysis import analyse_traces
from ddp_perf.traces.merge import merge_traces

MERGED = "merged.json.gz"


def profile_cases(
    cases: Sequence[Case],
    steps: int,
    *,
    root: Path,
    import_paths: Sequence[str],
    injections: Sequence[Injection],
    launcher: Launcher,
    progress: Progress,
) -> dict[str, CaseProfile]:
    """Write the traces under ``root``/artifacts, and return their analyses by case id.

    Raises LaunchError if ranks cannot be started. A launch that fails, or traces that cannot be
    read, become the problem of that case.
    """
    plan = interleave([(case, 1) for case in cases], import_paths, injections, root=root)
    progress.extend(len(plan), f"one more launch of each case, with {steps} profiled steps")
    return {request.case.id: _profile(request, steps, root, launcher, progress) for request in plan}


def _profile(
    request: LaunchRequest, steps: int, root: Path, launcher: Launcher, progress: Progress
) -> CaseProfile:
    directory = profile_directory(root, request.case)
    profiling = Profiling(steps=steps, directory=str(directory))
    request = msgspec.structs.replace(request, profiling=profiling)
    outcome = launcher.launch(request)
    progress.launched(request, outcome, None)
    if isinstance(outcome, LaunchFailure):
        return CaseProfile(directory=str(directory), problem=str(outcome))
    files = {rank: Path(profiling.file(rank)) for rank in range(request.case.world_size)}
    try:
        merge_traces(files, directory / MERGED)
        analysis = analyse_traces(list(files.values()))
    except (TraceError, OSError) as error:
        return CaseProfile(directory=str(directory), problem=str(error))
    return CaseProfile(directory=str(directory), analysis=analysis)
