"""A case beside what somebody published of it: shown where it may be, gated where nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.stats.alpha_beta import bus_factor
from ddp_perf.stats.audit import audit_table


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table that speaks of this case."""

    table: PublishedTable
    row: PublishedRow

    def ratio(self, case: Case, summaries: Sequence[LaunchSummary]) -> float | None:
        """Time for the same work, measured ÷ published; None where it states no such figure.

        Published figures are means: of the steps, or samples ÷ time. So are those they meet here.
        """
        if self.row.bus_gb_per_s is not None and case.collective is not None:
            algorithm = statistics.median(row.throughput for row in summaries)  # bytes a second
            bus = algorithm * bus_factor(case.collective.kind, case.world_size)
            return self.row.bus_gb_per_s * 1e9 / bus
        if self.row.throughput is not None:
            return self.row.throughput / statistics.median(row.throughput for row in summaries)
        if self.row.step_ms is not None:
            step_s = statistics.median(row.mean_step_s for row in summaries)
            return step_s * 1e3 / self.row.step_ms
        return None

    def obstacles(self, case: Case) -> list[str]:
        """Why this figure cannot gate the case; empty where it can."""
        work, schedule = case.work(), case.schedule
        reasons = [
            f"{name} {value} there, {work.get(name, 'unset')} here"
            for name, value in self.table.work.items()
            if work.get(name) != value
        ]
        if self.row.batch_size not in (None, case.batch_size):
            reasons.append(f"batch {self.row.batch_size} there, {case.batch_size} here")
        for name in ("steps", "warmup"):
            there, here = getattr(self.table, name), getattr(schedule, name)
            if there not in (None, here):
                reasons.append(f"{name} {there} there, {here} here")
        if self.table.modelled:
            reasons.append("its authors modelled it")
        reasons += [str(found) for found in audit_table(self.table) if found.row == self.row]
        return reasons


def published_of(baseline: Baseline, case: Case) -> Iterator[Published]:
    """Every published row that names this case."""
    for table in baseline.published:
        for row in table.rows:
            if row.case == case.id:
                yield Published(table=table, row=row)


def known_cases(baseline: Baseline) -> set[str]:
    """Ids of the cases that it holds figures of, measured or published."""
    rows = [row for table in baseline.published for row in table.rows]
    return {*baseline.cases, *(row.case for row in rows if row.case is not None)}


def judge_published(
    published: Sequence[Published], case: Case, summaries: Sequence[LaunchSummary]
) -> Verdict | None:
    """MEETS or BELOW PUBLISHED, by the first row that may gate; None where none may."""
    for one in published:
        ratio = one.ratio(case, summaries)
        if ratio is None or one.obstacles(case):
            continue
        below = ratio > 1 + one.table.tolerance
        return Verdict(
            outcome=Outcome.BELOW_PUBLISHED if below else Outcome.MEETS_PUBLISHED,
            ratio=ratio,
            reason=(
                f"{ratio:.3f} × the time of {_source(one)}, of a spread unknown (tolerance"
                f" {one.table.tolerance:.0%}); --save-baseline records this machine's own"
            ),
        )
    return None


def describe_published(
    published: Sequence[Published], case: Case, summaries: Sequence[LaunchSummary]
) -> str | None:
    """One line beside the verdict, with what speaks against the comparison; None: nothing is."""
    for one in published:
        if (ratio := one.ratio(case, summaries)) is not None:
            against = "; ".join(one.obstacles(case))
            note = f" (not comparable: {against})" if against else ""
            return f"published: {ratio:.3f} × the time of {_source(one)}{note}"
    return None


def _source(one: Published) -> str:
    return f"{one.table.document}, {one.table.where}, {one.table.hardware}"
