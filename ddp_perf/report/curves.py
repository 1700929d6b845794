"""The scaling curves of a suite as plots show them: rows by number of ranks, from one rank on."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.scaling_key import curve_label, scaling_key
from ddp_perf.report.rows import CaseRow
from ddp_perf.session.result import SuiteResult


class PlotSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one scaling curve, with its single-rank baseline run."""

    name: str
    rows: tuple[CaseRow, ...]  # sorted by ranks; each was measured
    tolerance: float  # of the step time, a fraction


def series_of(result: SuiteResult, rows: Sequence[CaseRow]) -> list[PlotSeries]:
    """Return the scaling curves whose single-rank baseline run was measured."""
    by_id = {row.case: row for row in rows if row.throughput is not None}
    grouped: dict[tuple[str, str], list[Case]] = collections.defaultdict(list)
    for case_id in by_id:
        case = result.measurements[case_id].case
        if case.single is not None and case.single in by_id:
            grouped[case.single, scaling_key(case.work())].append(case)
    series = []
    for (single, _), cases in grouped.items():
        members = [by_id[single], *(by_id[case.id] for case in cases)]
        series.append(
            PlotSeries(
                name=curve_label(cases[0].id, cases[0].world_size),
                rows=tuple(sorted(members, key=lambda row: row.ranks)),
                tolerance=cases[0].tolerances.step_time,
            )
        )
    return series
