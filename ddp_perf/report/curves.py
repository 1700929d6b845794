"""The scaling curves of a suite as plots show them: rows by number of ranks, from one rank on."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.scaling_key import curve_label, layout_curves, scaling_key
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
    return [
        _curve([by_id[single], *(by_id[alike[place].id] for place in places)], alike[places[0]])
        for (single, _), alike in grouped.items()
        for places in layout_curves([case.work() for case in alike]).values()
    ]


def _curve(rows: Sequence[CaseRow], case: Case) -> PlotSeries:
    return PlotSeries(
        name=curve_label(case.id, case.world_size),
        rows=tuple(sorted(rows, key=lambda row: row.ranks)),
        tolerance=case.tolerances.step_time,
    )
