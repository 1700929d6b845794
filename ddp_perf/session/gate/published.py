"""The comparison of a case with published figures of it.

It is shown for every figure that a document states. It gates only if the document states the same
work and no session was stored yet.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.core.metric import EFFICIENCY, metric_spec, metric_title
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.stats.audit.published import audit_table
from ddp_perf.stats.link.model import bus_factor


class PublishedComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A published figure beside the measured one of the same metric."""

    figure: str  # as it was published: "99.77 ms a step"
    ratio: float  # of the lower-is-better metric, measured ÷ published
    source: str
    tolerance: float
    obstacles: tuple[str, ...]  # why the figure cannot gate the case; empty if it can


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table about this case, or about the same workload on as many GPUs."""

    table: PublishedTable
    row: PublishedRow

    def comparison(
        self, metric: str, case: Case, summaries: Sequence[LaunchSummary]
    ) -> PublishedComparison | None:
        """Return the comparison of a metric, or None if the row does not state it."""
        published_as = metric_spec(metric).published_as
        if published_as == "step":
            found = self._of_step(case, summaries)
        elif published_as == "scaling":
            found = self._of_scaling(case, summaries)
        else:
            found = None
        if found is None:
            return None
        figure, ratio = found
        return PublishedComparison(
            figure=figure,
            ratio=ratio,
            source=f"{self.table.document}, {self.table.where}, {self.table.hardware}",
            tolerance=self.table.tolerance,
            obstacles=tuple(self._obstacles(case)),
        )

    def _of_step(self, case: Case, summaries: Sequence[LaunchSummary]) -> tuple[str, float] | None:
        """Return the published figure of a step, and measured ÷ published of the means."""
        row = self.row
        if row.bus_gb_per_s is not None and case.collective is not None:
            algorithm = statistics.median(row.throughput for row in summaries)  # bytes a second
            bus = algorithm * bus_factor(case.collective.kind, case.world_size)
            return f"{row.bus_gb_per_s:g} GB/s of bus bandwidth", row.bus_gb_per_s * 1e9 / bus
        step = [f"{row.step_ms:g} ms a step"] if row.step_ms is not None else []
        if row.throughput is not None:
            figure = ", ".join([*step, f"{row.throughput:,.6g} {self.table.unit}/s"])
            return figure, row.throughput / statistics.median(row.throughput for row in summaries)
        if row.step_ms is not None:
            step_s = statistics.median(row.mean_step_s for row in summaries)
            return step[0], step_s * 1e3 / row.step_ms
        return None

    def _of_scaling(
        self, case: Case, summaries: Sequence[LaunchSummary]
    ) -> tuple[str, float] | None:
        """Return the published scaling, and measured ÷ published cost; efficiency is 1 ÷ cost.

        Weak scaling is not compared with strong scaling.
        """
        row = self.row
        costs = [s.values[EFFICIENCY.name] for s in summaries if EFFICIENCY.name in s.values]
        if (self.table.scaling == "strong") != (case.global_batch is not None) or not costs:
            return None
        if row.efficiency is not None:
            return f"{100 * row.efficiency:.3g} % efficiency", statistics.median(
                costs
            ) * row.efficiency
        if row.speedup is not None:
            efficiency = row.speedup / row.world_size
            return f"{row.speedup:g} × speedup", statistics.median(costs) * efficiency
        return None

    def _obstacles(self, case: Case) -> Iterator[str]:
        work, schedule = case.work(), case.schedule
        for name, value in self.table.work.items():
            if work.get(name) != value:
                yield f"{name} {value} there, {work.get(name, 'unset')} here"
        if self.row.batch_size not in (None, case.batch_size):
            yield f"batch {self.row.batch_size} there, {case.batch_size} here"
        for name in ("steps", "warmup"):
            there, here = getattr(self.table, name), getattr(schedule, name)
            if there not in (None, here):
                yield f"{name} {there} there, {here} here"
        if self.table.inferred:
            yield f"the document does not state {', '.join(self.table.inferred)}"
        if self.table.modelled:
            yield "its authors modelled it"
        if self.row.case is None:
            yield "its row names no case"
        yield from (str(found) for found in audit_table(self.table) if found.row == self.row)


def published_of(baseline: Baseline, case: Case) -> list[Published]:
    """Return every row that names this case, or names no case and has its workload and GPUs."""
    return [
        Published(table=table, row=row)
        for table in baseline.published
        for row in table.rows
        if row.case == case.id or (row.case is None and _is_alike(table, row, case))
    ]


def _is_alike(table: PublishedTable, row: PublishedRow, case: Case) -> bool:
    return (
        table.work.get("workload") == case.workload
        and row.world_size == case.world_size
        and row.strategy in (None, case.strategy)
    )


def known_cases(baseline: Baseline) -> set[str]:
    """Return the ids of the cases that it can gate, by measured or by published figures."""
    gating = [table for table in baseline.published if not (table.inferred or table.modelled)]
    rows = [row for table in gating for row in table.rows]
    return {*baseline.cases, *(row.case for row in rows if row.case is not None)}


def cases_elsewhere(relatives: Sequence[Baseline]) -> dict[str, str]:
    """Return, by case id, the nearest relative that can gate the case; they come nearest first."""
    return {
        case_id: other.accelerator
        for other in reversed(relatives)  # the nearest one replaces the others
        for case_id in known_cases(other)
    }


def judge_published(
    published: Sequence[Published], metric: str, case: Case, summaries: Sequence[LaunchSummary]
) -> Verdict | None:
    """Return MEETS or BELOW PUBLISHED by the first row that may gate, or None if no row may."""
    for found in _comparisons(published, metric, case, summaries):
        if found.obstacles:
            continue
        below = found.ratio > 1 + found.tolerance
        return Verdict(
            outcome=Outcome.BELOW_PUBLISHED if below else Outcome.MEETS_PUBLISHED,
            ratio=found.ratio,
            reason=(
                f"{found.ratio:.3f} × the {metric_title(metric)} of the published {found.figure}"
                f" ({found.source}), whose spread is unknown (tolerance {found.tolerance:.0%});"
                " --save-baseline records this machine's own"
            ),
        )
    return None


def describe_published(
    published: Sequence[Published], metric: str, case: Case, summaries: Sequence[LaunchSummary]
) -> str | None:
    """Return one line on the row with the fewest obstacles, or None if no row states it."""
    found = min(
        _comparisons(published, metric, case, summaries),
        key=lambda found: len(found.obstacles),
        default=None,
    )
    if found is None:
        return None
    note = f"; it does not gate: {'; '.join(found.obstacles)}" if found.obstacles else ""
    return (
        f"published: {found.figure}; measured: {found.ratio:.3f} × that {metric_title(metric)}"
        f" ({found.source}){note}"
    )


def _comparisons(
    published: Sequence[Published], metric: str, case: Case, summaries: Sequence[LaunchSummary]
) -> list[PublishedComparison]:
    found = (one.comparison(metric, case, summaries) for one in published)
    return [comparison for comparison in found if comparison is not None]
