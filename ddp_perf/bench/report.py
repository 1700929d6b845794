"""The report of rank 0: the placement of all ranks, the summary block, and the traces."""

from __future__ import annotations

import os

from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.core.measurement import Measurement
from ddp_perf.report.terminal.text import case_summary
from ddp_perf.stats.summary import summaries_of
from ddp_perf.system.gpu.gpus import accelerator_slug, find_gpus


def report_text(request: LaunchRequest, launch: LaunchResult) -> str:
    """Return the report of a launch, as ``--ddp-summary`` shows a case."""
    case = request.case
    measurement = Measurement(case=case, launches=(launch,), failures=())
    summaries = summaries_of({case.id: measurement})[case.id]
    text = case_summary(measurement, summaries, accelerator_slug(find_gpus()))
    return "\n".join([text, *_traces(request, launch)])


def _traces(request: LaunchRequest, launch: LaunchResult) -> list[str]:
    """Return where each rank wrote its trace, with its host if there are several."""
    if request.profiling is None:
        return []
    lines = ["", "traces, for ui.perfetto.dev and ddp-perf trace:"]
    for rank in launch.ranks:
        place = rank.placement
        path = os.path.relpath(request.profiling.file(place.rank))
        lines.append(f"{path} on {place.host}" if request.case.nodes > 1 else path)
    return lines
