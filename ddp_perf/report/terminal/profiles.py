"""A summary of the profiled launches of a session."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence

from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names, wrapped
from ddp_perf.render.units import ABSENT, percent
from ddp_perf.session.measure.profiling import MERGED
from ddp_perf.session.result import CaseProfile, SuiteResult
from ddp_perf.traces.text import comparison_lines, ms
from ddp_perf.traces.values import TraceAnalysis


def profiles_text(result: SuiteResult, width: int) -> str:
    """Return a table with one row for each case, then the paths of the traces."""
    width = max(width, NARROWEST)
    table = plain_table()
    table.add_column("profiled", overflow="fold")
    for heading in ("step\nms", "exposed\ncomm. ms", "over-\nlap"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("longest kernel", "longest collective"):
        table.add_column(heading, no_wrap=True, max_width=(width - 42) // 2)
    names = short_names(result.profiles)
    for case_id, profile in result.profiles.items():
        if profile.analysis is not None:
            table.add_row(names[case_id], *_row(profile.analysis))
    notes = [_note(case_id, profile) for case_id, profile in result.profiles.items()]
    lines = [*rendered(table, width), "traces, for ui.perfetto.dev:"] if table.rows else []
    return "\n".join([*lines, *wrapped(notes, width)])


def _row(analysis: TraceAnalysis) -> Sequence[str]:
    """Return the cells of a case.

    Times are medians over the steps of all ranks. The overlap ratio is of the rank with the least.
    """
    steps = [step for rank in analysis.ranks for step in rank.steps]
    overlaps = [rank.split.overlap for rank in analysis.ranks if rank.split.overlap is not None]
    kernel = analysis.kernels[0] if analysis.kernels else None
    collective = analysis.collectives[0].message if analysis.collectives else None
    size = f" {collective.bytes:,} B" if collective and collective.bytes is not None else ""
    return (
        ms(statistics.median(step.step_s for step in steps)) if steps else ABSENT,
        ms(statistics.median(s.exposed_communication_s for s in steps)) if steps else ABSENT,
        percent(min(overlaps, default=None)),
        kernel.name.removeprefix("void ") if kernel else ABSENT,
        f"{collective.kind}{size}" if collective else ABSENT,
    )


def _note(case_id: str, profile: CaseProfile) -> str:
    if profile.analysis is None:
        return f"no profile of {case_id}: {profile.problem}"
    slowest = ""
    if profile.analysis.comparison is not None:
        slowest = f"; {comparison_lines(profile.analysis.comparison)[-1]}"
    path = os.path.relpath(f"{profile.directory}/{MERGED}")
    splits = [rank.split for rank in profile.analysis.ranks if rank.split.window_s]
    busy = min((1 - split.idle_s / split.window_s for split in splits), default=None)
    return f"{path}{slowest}" if busy is None else f"{path}{slowest}; busy {busy:.0%} of the time"
