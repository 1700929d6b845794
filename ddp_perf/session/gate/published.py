"""Published figures of a case: its targets on the GPU that they were published for.

A figure asserts something if it was measured, the case does the work that its document states, and
no other figure of its table contradicts it. Any other figure is shown beside the case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.metric import EFFICIENCY, STEP_TIME
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.core.target import PublishedFigure, Target, targets_on
from ddp_perf.stats.plausibility import audit_table

# The metric whose verdict shows a figure that asserts nothing.
_SHOWN_WITH = {
    "throughput": STEP_TIME.name,
    "step_time": STEP_TIME.name,
    "busbw": STEP_TIME.name,
    "efficiency": EFFICIENCY.name,
}
# What a contradiction is of, if the figure cannot be told from it.
_IN_DOUBT = {
    "throughput": {"throughput", "global batch"},
    "step_time": {"throughput", "global batch"},
    "efficiency": {"efficiency", "speedup", "global batch"},
    "busbw": {"busbw"},
}


class _Stated(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a row about a case, or about the same workload on as many GPUs."""

    table: PublishedTable
    row: PublishedRow
    figure: str  # of `TARGET_SPECS`
    value: float  # in SI units
    unit: str
    text: str  # as it was published: "71,710 samples/s"

    @property
    def source(self) -> str:
        return f"{self.table.document}, {self.table.where}"

    def obstacles(self, case: Case) -> Iterator[str]:
        """Yield each reason why the figure asserts nothing of the case."""
        work = case.work()
        for name, value in self.table.work.items():
            if work.get(name) != value:
                yield f"{name} {value} there, {work.get(name, 'unset')} here"
        if self.row.batch_size not in (None, case.batch_size):
            yield f"batch {self.row.batch_size} there, {case.batch_size} here"
        if self.table.modelled:
            yield "its authors modelled it"
        if self.row.case is None:
            yield "its row names no case"
        contradicted = [found for found in audit_table(self.table) if found.row == self.row]
        for found in contradicted:
            if found.what in _IN_DOUBT[self.figure]:
                yield str(found)
        of_all = self.row.throughput is not None and all(
            found.what not in _IN_DOUBT["throughput"] for found in contradicted
        )
        if self.figure == "efficiency" and not of_all:
            yield "without a throughput of all ranks a faster rank alone looks like worse scaling"

    def target(self, file: str) -> Target:
        less = 1 - self.table.shortfall
        return Target(
            figure=self.figure,
            bound=self.value / less if self.figure == "step_time" else self.value * less,
            unit=self.unit,
            file=file,
            published=PublishedFigure(
                value=self.value,
                source=self.source,
                shortfall=self.table.shortfall,
                inferred=self.table.inferred,
            ),
        )


def targets_of(case: Case, accelerator: str, tables: Sequence[PublishedTable]) -> dict[str, Target]:
    """Return the targets of a case on an accelerator by metric.

    ``tables`` were published for that accelerator. A target of the suite replaces the published
    one of the same figure.
    """
    file = f"baselines/{accelerator}.json"
    published = [
        stated.target(file) for stated in _stated(tables, case) if not any(stated.obstacles(case))
    ]
    return targets_on(accelerator, (*case.targets, *published))


def describe_published(tables: Sequence[PublishedTable], metric: str, case: Case) -> str | None:
    """Return one line on the figure nearest to the case that asserts nothing of it.

    None if the metric shows none, or if another figure of it is a target.
    """
    stated = [one for one in _stated(tables, case) if _SHOWN_WITH[one.figure] == metric]
    against = sorted(
        ((one, tuple(one.obstacles(case))) for one in stated), key=lambda pair: len(pair[1])
    )
    if not against or not against[0][1]:
        return None
    one, obstacles = against[0]
    published = f"published: {one.text} ({one.source}, {one.table.hardware})"
    return f"{published}; it asserts nothing: {'; '.join(obstacles)}"


def _stated(tables: Sequence[PublishedTable], case: Case) -> Iterator[_Stated]:
    """Yield the figures of every row that names the case, or no case and has its workload."""
    for table in tables:
        for row in table.rows:
            if row.case == case.id or (row.case is None and _is_alike(table, row, case)):
                for figure, value, unit, text in _figures(table, row, case):
                    yield _Stated(
                        table=table, row=row, figure=figure, value=value, unit=unit, text=text
                    )


def _is_alike(table: PublishedTable, row: PublishedRow, case: Case) -> bool:
    return (
        table.work.get("workload") == case.workload
        and row.world_size == case.world_size
        and row.strategy in (None, case.strategy)
    )


def _figures(
    table: PublishedTable, row: PublishedRow, case: Case
) -> Iterator[tuple[str, float, str, str]]:
    """Yield each figure with its value, its unit, and the text that was published.

    Weak scaling is not compared with strong scaling. There is no efficiency without one rank.
    """
    if case.collective is not None:
        if row.bus_gb_per_s is not None:
            text = f"{row.bus_gb_per_s:g} GB/s of bus bandwidth"
            yield "busbw", row.bus_gb_per_s * 1e9, "GB/s", text
    elif row.throughput is not None:
        yield "throughput", row.throughput, "", f"{row.throughput:,.6g} {table.unit}/s"
    elif row.step_ms is not None:
        yield "step_time", row.step_ms / 1e3, "ms", f"{row.step_ms:g} ms a step"
    if case.single is None or (table.scaling == "strong") != (case.global_batch is not None):
        return
    if row.efficiency is not None:
        yield "efficiency", row.efficiency, "%", f"{100 * row.efficiency:.3g} % efficiency"
    elif row.speedup is not None:
        yield "efficiency", row.speedup / row.world_size, "%", f"{row.speedup:g} × speedup"
