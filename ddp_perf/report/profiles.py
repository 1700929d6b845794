"""The profiled launches of a session: where their time went, and their traces."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence

from ddp_perf.render.model import Part, Table, figures, notes, words
from ddp_perf.render.units import ABSENT, percent, short_names
from ddp_perf.session.measure.further_launches import MERGED
from ddp_perf.session.result import CaseProfile, SuiteResult
from ddp_perf.traces.chrome import TraceAnalysis
from ddp_perf.traces.text import comparison_lines, ms


def profile_parts(result: SuiteResult) -> tuple[Part, ...]:
    """Return a row for each case that was profiled, with the paths of the traces, if any was."""
    table = _table(result)
    texts = (_note(case_id, one) for case_id, one in result.profiles.items())
    return (*([table] if table.rows else []), *notes(texts))


def _table(result: SuiteResult) -> Table:
    columns = (
        *words("profiled"),
        *figures("step ms", "exposed comm. ms", "over\u00adlap"),
        *words("longest kernel", "longest collective"),
    )
    names = short_names(result.profiles)
    rows = (
        (names[case_id], *_row(profile.analysis))
        for case_id, profile in result.profiles.items()
        if profile.analysis is not None
    )
    return Table.of_texts(columns, rows)


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
    path = f"trace for ui.perfetto.dev: {path}"
    return f"{path}{slowest}" if busy is None else f"{path}{slowest}; busy {busy:.0%} of the time"
