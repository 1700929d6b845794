"""The terminal table of a suite: one row a case, one line for each verdict that is no PASS."""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence

import msgspec
import rich.box
import rich.console
import rich.table

from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.verdict import Outcome
from ddp_perf.report.text import describe_finding
from ddp_perf.session.suite import SuiteResult
from ddp_perf.stats.scaling import Scaling, weak_scaling

_NARROWEST = 80
# The worst verdict of a case stands for it.
_SEVERITY = [
    Outcome.REGRESSION,
    Outcome.INCOMPARABLE,
    Outcome.NO_BASELINE,
    Outcome.INVALID,
    Outcome.SUSPECT,
    Outcome.INCONCLUSIVE,
    Outcome.PASS,
    Outcome.IMPROVEMENT,
]
_QUIET = (Outcome.PASS, Outcome.NO_BASELINE)  # said once for all, or nothing to say


class CaseFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the launches of a case."""

    step_s: float
    p95_step_s: float
    throughput: float
    scaling: Scaling | None  # None: one rank, or no one-rank leg was measured


def case_figures(result: SuiteResult, case_id: str) -> CaseFigures | None:
    """What the table and the test reports show; None when no launch was finished."""
    rows = result.summaries.get(case_id, ())
    if not rows:
        return None
    case = result.measurements[case_id].case
    step_s, throughput = _typical(rows)
    singles = result.summaries.get(case.single, ()) if case.single else ()
    scaling = None
    if singles:
        single_s, single_throughput = _typical(singles)
        scaling = weak_scaling(
            world_size=case.world_size,
            throughput=throughput,
            single_throughput=single_throughput,
            step_s=step_s,
            single_s=single_s,
        )
    return CaseFigures(
        step_s=step_s,
        p95_step_s=statistics.median(row.p95_step_s for row in rows),
        throughput=throughput,
        scaling=scaling,
    )


def suite_table(result: SuiteResult, width: int) -> str:
    """The table and the verdicts that need reading, as plain text of at most ``width``."""
    table = rich.table.Table(
        box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style=""
    )
    table.add_column("case", overflow="fold")
    for heading in ("step\nms", "samples\n/s", "a GPU\n/s", "speed-\nup", "effi-\nciency"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("exposed\ncomm.", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("min.\ndetect.", justify="right", no_wrap=True)
    names = short_names(list(result.measurements))
    for (case_id, measurement), name in zip(result.measurements.items(), names, strict=True):
        table.add_row(name, *_row(result, case_id, measurement))
    file = io.StringIO()
    console = rich.console.Console(
        file=file, width=max(width, _NARROWEST), color_system=None, markup=False, highlight=False
    )
    console.print(table)
    lines = [line.rstrip() for line in file.getvalue().rstrip().splitlines()]
    return "\n".join([*lines, *_notes(result)])


def _row(result: SuiteResult, case_id: str, measurement: Measurement) -> list[str]:
    figures = case_figures(result, case_id)
    if figures is None or measurement.failures:
        return [*["–"] * 6, "FAILED", "–"]
    scaling = figures.scaling
    findings = [finding for finding in result.findings if finding.case_id == case_id]
    step = result.finding(case_id, STEP_TIME.name)
    detectable = step.verdict.minimum_detectable if step else None
    return [
        f"{figures.step_s * 1e3:.2f}",
        f"{figures.throughput:,.0f}",
        f"{figures.throughput / measurement.case.world_size:,.0f}",
        f"{scaling.speedup:.2f}" if scaling else "–",
        f"{scaling.efficiency:.0%}" if scaling else "–",
        f"{scaling.exposed_fraction:.0%}" if scaling else "–",
        _worst(findings).value if findings else "–",
        f"{detectable:.1%}" if detectable is not None else "–",
    ]


def _notes(result: SuiteResult) -> list[str]:
    notes = [
        line
        for finding in result.findings
        if finding.verdict.outcome not in _QUIET
        for line in describe_finding(finding).splitlines()
    ]
    unknown = {f.case_id for f in result.findings if f.verdict.outcome is Outcome.NO_BASELINE}
    if unknown:
        notes.append(f"{len(unknown)} cases without a baseline in {result.baseline_path}")
    for note in dict.fromkeys(result.saved.values()):
        cases = [case_id for case_id in result.saved if result.saved[case_id] == note]
        notes.append(f"{cases[0] if len(cases) == 1 else f'{len(cases)} cases'}: {note}")
    return notes


def short_names(ids: Sequence[str]) -> list[str]:
    """The ids without the parts that all of them share: they must fit a narrow column."""
    parts = [case_id.split("-") for case_id in ids]
    if len(ids) < 2 or len({len(row) for row in parts}) > 1:
        return list(ids)
    kept = [i for i, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
    return ["-".join(row[i] for i in kept) for row in parts]


def _worst(findings: Sequence[Finding]) -> Outcome:
    return min((finding.verdict.outcome for finding in findings), key=_SEVERITY.index)


def _typical(rows: Sequence[LaunchSummary]) -> tuple[float, float]:
    """Step time in seconds and throughput in samples/s: medians over the launches."""
    step_s = statistics.median(row.values[STEP_TIME.name] for row in rows)
    return step_s, statistics.median(row.throughput for row in rows)
