"""One row for each case. All files for other tools are written from these rows, so they agree."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import Unit
from ddp_perf.core.measurement import Finding, LaunchSummary
from ddp_perf.core.metric import PEAK_MEMORY, STEP_TIME
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import counted
from ddp_perf.report.in_words import in_words
from ddp_perf.report.ruled_out import ruled_out_lines
from ddp_perf.report.saved import resolved_text
from ddp_perf.report.terminal.explanation import cause_line
from ddp_perf.report.terminal.settled import settled_causes
from ddp_perf.report.terminal.text import describe_known
from ddp_perf.report.untested import untested_failures, untested_lines
from ddp_perf.report.verdicts import NO_TEST, Status, mark_of, status_of, worst
from ddp_perf.session.figures import CaseFigures, case_figures, epoch_of
from ddp_perf.session.gains import GainTable, gains_of
from ddp_perf.session.gate.utilisation import utilisation_of
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.audit.link_peak import link_peak
from ddp_perf.stats.utilisation import utilisation_figures

FAILED = "FAILED"  # a launch of the case failed
NOT_JUDGED = "NOT JUDGED"


class CaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over launches, in SI units. None: it was not measured, or does not apply.

    ``verdict`` is the worst of the case's metrics. The fields from ``metric`` to
    ``minimum_detectable`` are of that metric.
    """

    suite: str
    case: str
    accelerator: str
    date: str  # ISO 8601, UTC
    commit: str | None
    branch: str | None
    host: str
    workload: str
    strategy: str
    precision: str | None  # None: a script chooses it
    ranks: int
    batch_size: int | None  # per rank and micro-step
    global_batch: int | None  # samples of a step that all ranks share; None: weak scaling
    launches: int
    verdict: str
    status: Status = msgspec.field(name="standing")  # the name of its column in the files
    metric: str | None
    ratio: float | None  # this session ÷ the baseline; 1.05: 5 % worse
    ratio_low: float | None  # the 99 % interval
    ratio_high: float | None
    minimum_detectable: float | None  # a fraction
    step_s: float | None  # typical: the median
    step_low_s: float | None  # the fastest launch
    step_high_s: float | None  # the slowest
    level_s: float | None  # of the step, which is gated: without what disturbed it
    baseline_level_s: float | None
    p95_step_s: float | None
    throughput: float | None  # of ``unit``, per second, over all ranks
    unit: str | None
    speedup: float | None
    efficiency: float | None  # a fraction
    scaling_overhead_s: float | None  # step of N ranks − the ideal step
    epoch_s: float | None  # computed: samples of an epoch ÷ throughput
    cost_per_million: float | None  # of ``unit``, in the currency of the suite's price
    peak_memory: float | None  # bytes, of a rank
    energy_j: float | None  # per sample, of all GPUs
    call_s: float | None  # of a collective, as its two bandwidths
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None
    reason: str
    targets: int | None  # number of the case's targets on this accelerator
    targets_met: int | None
    cause: str | None  # the largest cause, with its evidence, if the case got slower
    # Utilisation: of a rank or a GPU, the mean over all of them; docs/measuring.md defines each.
    cpu_cores: float | None = None
    system_cores: float | None = None
    loader_cores: float | None = None
    cores_share: float | None = None
    interface: str | None = None
    network_bytes_per_s: float | None = None
    network_share: float | None = None
    rdma_ports: str | None = None
    rdma_bytes_per_s: float | None = None
    rdma_share: float | None = None
    rdma_waits_per_s: float | None = None
    mfu: float | None = None
    gpu_busy: float | None = None
    gpu_memory_busy: float | None = None
    gpu_memory_used: float | None = None
    gpu_memory_share: float | None = None
    sm_clock_mhz: float | None = None
    pcie_bytes_per_s: float | None = None
    nvlink_bytes_per_s: float | None = None
    nvlink_share: float | None = None
    in_words: str | None = None  # how it differs from its baseline: "24 % slower, 33 % more FLOPs"


class ReportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All rows, and the status of the session, for which an UNTESTED row does not count."""

    status: Status
    headline: str
    counts: dict[str, int]  # counted cases by verdict, the most frequent first
    ruled_out: tuple[str, ...]  # slow-downs of the step, a line for each suite and time
    untested: tuple[str, ...]  # what no test asserts, with its suite
    gains: tuple[GainTable, ...]  # what each technique gains
    rows: tuple[CaseRow, ...]

    def of(self, status: Status) -> list[CaseRow]:
        return [row for row in self.rows if row.status is status]


def report_summary(suites: Sequence[SuiteResult], *, complete: bool) -> ReportSummary:
    """Return the rows and the status of a session.

    A session that measured nothing, or that was cut short, is never green. Neither is one in which
    a case failed that no test requests: what is computed from it cannot be judged.
    """
    rows = tuple(_row(suite, case_id) for suite in suites for case_id in suite.measurements)
    tested = [row for row in rows if row.status is not Status.UNTESTED]
    failed = [failure for suite in suites for failure in untested_failures(suite)]
    status = Status.UNDECIDED
    if any(row.status is Status.RED for row in tested):
        status = Status.RED
    elif tested and complete and not failed and all(row.status is Status.GREEN for row in tested):
        status = Status.GREEN
    headline = _headline(tested) or (
        "no test asserts a verdict" if rows else "nothing was measured"
    )
    if failed:
        headline += f"; {counted(len(failed), 'case')} failed that no test requests"
    if not complete:
        headline += "; the session did not measure all requested cases"
    return ReportSummary(
        status=status,
        headline=headline,
        counts=dict(Counter(row.verdict for row in tested).most_common()),
        ruled_out=_with_suite(suites, ruled_out_lines),
        untested=_with_suite(suites, untested_lines),
        gains=tuple(table for suite in suites for table in gains_of(suite)),
        rows=rows,
    )


def _headline(tested: Sequence[CaseRow]) -> str:
    """Return the number of cases with each status; an empty text for no case."""
    number = Counter(row.status for row in tested)
    texts = {
        Status.RED: f"{number[Status.RED]} of {counted(len(tested), 'case')} failed",
        Status.UNDECIDED: f"{number[Status.UNDECIDED]} undecided",
        Status.GREEN: f"{number[Status.GREEN]} passed",
    }
    return ", ".join(text for status, text in texts.items() if number[status])


def _with_suite(
    suites: Sequence[SuiteResult], lines_of: Callable[[SuiteResult], list[str]]
) -> tuple[str, ...]:
    return tuple(f"{suite.suite}: {line}" for suite in suites for line in lines_of(suite))


def _row(result: SuiteResult, case_id: str) -> CaseRow:
    measurement = result.measurements[case_id]
    case, environment = measurement.case, result.environment
    return CaseRow(
        suite=result.suite,
        case=case_id,
        accelerator=environment.accelerator,
        date=result.date,
        commit=environment.commit,
        branch=environment.branch,
        host=environment.host,
        workload=case.workload,
        strategy=case.strategy,
        precision=case.precision,
        ranks=case.world_size,
        batch_size=case.batch_size,
        global_batch=case.global_batch,
        launches=len(measurement.launches),
        **_judged(result, case_id),
        **_measured(result, case),
        **_used(result, case),
        in_words=in_words(result, case_id),
    )


def _judged(result: SuiteResult, case_id: str) -> dict[str, Any]:
    """Return the verdict fields. A failed launch precedes any verdict, as in the terminal table."""
    failures = result.measurements[case_id].failures
    findings = [finding for finding in result.findings if finding.case_id == case_id]
    finding: Finding | None = None
    mark: str | None = None
    if failures:
        verdict, status, reason = FAILED, Status.RED, str(failures[0])
    elif not findings:
        verdict, status, reason = (
            NOT_JUDGED,
            Status.UNDECIDED,
            "the session ended before it judged this case; run it again",
        )
    else:
        finding = worst(result, findings)
        verdict, status = finding.verdict.outcome.value, status_of(result, finding)
        mark, reason = mark_of(result, finding), _reason(result, finding)
    if finding is None and not result.is_requested(case_id):
        status, mark = Status.UNTESTED, NO_TEST
    found = finding.verdict if finding else None
    low, high = (found and found.interval) or (None, None)
    return {
        "verdict": verdict if mark is None else f"{verdict} {mark}",
        "status": status,
        "reason": reason,
        "metric": finding and finding.metric,
        "ratio": found and found.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "minimum_detectable": found and found.minimum_detectable,
        "cause": _cause(result, case_id),
        **_targets(findings),
    }


def _targets(findings: Sequence[Finding]) -> dict[str, int | None]:
    """Return the number of targets and of those that are met; None without a target."""
    outcomes = [found.verdict.outcome for found in findings if found.target is not None]
    met = outcomes.count(Outcome.MEETS_TARGET)
    return {"targets": len(outcomes) or None, "targets_met": met if outcomes else None}


def _reason(result: SuiteResult, finding: Finding) -> str:
    """Return the reason of a verdict, and what was stored or acknowledged."""
    reason = finding.disturbance or finding.verdict.reason
    if result.is_resolved(finding):
        reason = f"{reason}; {resolved_text(result, finding)}"
    if finding.known is not None:
        reason = f"{reason}; {describe_known(finding.known)}"
    return reason


def _cause(result: SuiteResult, case_id: str) -> str | None:
    """Return the commit, if it was found, and the largest cause."""
    why = result.explanations.get(case_id)
    explained = (cause_line(why.causes[0]),) if why and why.causes else ()
    return "; ".join([*settled_causes(result, case_id), *explained]) or None


def _measured(result: SuiteResult, case: Case) -> dict[str, Any]:
    figures, rows = case_figures(result, case.id), result.summaries.get(case.id, ())
    step, launches = result.finding(case.id, STEP_TIME.name), result.measurements[case.id].launches
    scaling, call = figures and figures.scaling, figures and figures.call
    steps = [row.typical_step_s for row in rows]
    levels = [row.values[STEP_TIME.name] for row in rows]
    return {
        "step_s": figures and figures.step_s,
        "step_low_s": min(steps, default=None),
        "step_high_s": max(steps, default=None),
        "level_s": statistics.median(levels) if levels else None,
        "baseline_level_s": step and step.baseline,
        "p95_step_s": figures and figures.p95_step_s,
        "throughput": figures and figures.throughput,
        "unit": figures and figures.unit,
        "speedup": scaling and scaling.speedup,
        "efficiency": scaling and scaling.efficiency,
        "scaling_overhead_s": scaling and scaling.overhead_s,
        "epoch_s": _epoch_s(case, figures, launches[0].unit) if launches else None,
        "cost_per_million": figures and figures.cost and figures.cost.per_million,
        "peak_memory": _peak_memory(rows),
        "energy_j": figures and figures.energy_j,
        "call_s": call and call.call_s,
        "algorithm_bytes_per_s": call and call.algorithm_bytes_per_s,
        "bus_bytes_per_s": call and call.bus_bytes_per_s,
    }


def _used(result: SuiteResult, case: Case) -> dict[str, Any]:
    """Return the utilisation fields, those that the machine's figures give among them."""
    measurement, machine = result.measurements[case.id], result.environment
    used = utilisation_figures(measurement.launches)
    training = utilisation_of(measurement, machine.accelerator_key)
    return {
        **msgspec.structs.asdict(used),
        "mfu": training and training.mfu,
        "gpu_memory_share": _ratio(used.gpu_memory_used, machine.gpu_memory),
        "nvlink_share": _ratio(used.nvlink_bytes_per_s, _nvlink_peak(machine)),
    }


def _nvlink_peak(machine: Environment) -> float | None:
    link = machine.interconnect or ""
    return link_peak(machine.accelerator_key, link) if link.startswith("NV") else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _epoch_s(case: Case, figures: CaseFigures | None, unit: Unit) -> float | None:
    epoch = epoch_of(case, unit)
    return epoch / figures.throughput if epoch is not None and figures is not None else None


def _peak_memory(rows: Sequence[LaunchSummary]) -> float | None:
    peaks = [row.values[PEAK_MEMORY.name] for row in rows if PEAK_MEMORY.name in row.values]
    return statistics.median(peaks) if peaks else None
