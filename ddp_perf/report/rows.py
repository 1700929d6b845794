"""One row for each case. All files for other tools are written from these rows, so they agree."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from ddp_perf.baselines.save import Refused, Saved, SaveMode
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchFailure, Unit
from ddp_perf.core.measurement import Finding, LaunchSummary
from ddp_perf.core.metric import (
    EFFICIENCY,
    LOSS,
    METRICS,
    PEAK_MEMORY,
    STEP_TIME,
    STRUCTURE,
    MetricSpec,
    gated_metrics,
    metric_title,
)
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.model import Status
from ddp_perf.render.units import at_most_percent, counted, rounded_percent
from ddp_perf.report.case_text import cause_line, settled_causes
from ddp_perf.report.status import NO_TEST, STORED, shown_verdict, status_of, worst
from ddp_perf.session.figures import CaseFigures, case_figures, epoch_of
from ddp_perf.session.gains import GainTable, gains_of
from ddp_perf.session.gate.targets import utilisation_of
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.plausibility import link_peak
from ddp_perf.stats.summary import utilisation_figures

# The difference of a case from its baseline in plain words: ``24 % slower (not yet proven)``.


_PROVEN = (Outcome.REGRESSION, Outcome.IMPROVEMENT)
_NOT_PROVEN = (Outcome.SUSPECT, Outcome.UNDECIDED)
_WORTH_A_WORD = 0.01  # of a change that is not proven


def in_words(result: SuiteResult, case_id: str) -> str | None:
    """Return how the case differs from its baseline, or None if no verdict states a difference.

    A metric other than these is named only if it is a REGRESSION.
    """
    found = {one.metric: one for one in result.findings if one.case_id == case_id}
    step, structure, loss = (found.pop(name, None) for name in (STEP_TIME.name, STRUCTURE, LOSS))
    if step is not None and _is_red(step):
        found.pop(EFFICIENCY.name, None)  # it is less for this reason
    parts = [
        *(_of_step(step) if step is not None else ()),
        *(_of_structure(structure) if structure is not None else ()),
        *(["another loss"] if loss is not None and _is_red(loss) else ()),
        *(
            f"{metric_title(name)} {_change(one.verdict.ratio, 'more', 'less')}"
            for name, one in found.items()
            if _is_red(one) and one.target is None and one.verdict.ratio is not None
        ),
    ]
    return ", ".join(parts) or None


def _is_red(finding: Finding) -> bool:
    return finding.verdict.outcome is Outcome.REGRESSION


def _of_step(finding: Finding) -> Iterator[str]:
    verdict = finding.verdict
    if verdict.ratio is None or finding.excuse is not None:
        return
    change = _change(verdict.ratio, "slower", "faster")
    if verdict.outcome in _PROVEN:
        yield change
    elif verdict.outcome in _NOT_PROVEN and abs(verdict.ratio - 1) >= _WORTH_A_WORD:
        yield f"{change} (not yet proven)"


def _of_structure(finding: Finding) -> Iterator[str]:
    """Yield the change of the FLOPs of a step, or else that its structure is another one."""
    before, now = finding.flops or (0, 0)
    if before and now != before:
        yield f"{_change(now / before, 'more', 'fewer')} FLOPs"
    elif _is_red(finding):
        yield "another structure of the step"


def _change(ratio: float, more: str, less: str) -> str:
    return f"{rounded_percent(abs(ratio - 1))} {more if ratio >= 1 else less}"


# The slow-down of the step that a session rules out, and what would decide the rest of it.


# Only the bound of such a verdict describes the code.
_BOUNDED = (Outcome.PASS, Outcome.IMPROVEMENT, Outcome.SUSPECT, Outcome.UNDECIDED)
_WITHOUT_BOUND = {
    Outcome.REGRESSION: "slower",
    Outcome.NO_BASELINE: "without a baseline",
    Outcome.INCOMPARABLE: "not comparable",
    Outcome.INVALID: "invalid",
}


def ruled_out_lines(result: SuiteResult) -> list[str]:
    """Return a line for each gated time of a step: the slow-down that no case of the suite has.

    A time gets a line if any of its verdicts has a bound, or lacks one because it is INVALID.
    Verdicts that no test asserts do not count.
    """
    by_case = {(found.case_id, found.metric): found for found in result.asserted_findings()}
    lines = []
    for metric in METRICS:
        if metric.unit != "s":  # a ratio, bytes or energy
            continue
        findings = [
            by_case.get((case_id, metric.name))
            for case_id, measurement in result.measurements.items()
            if metric.name in gated_metrics(measurement.case)
            if result.is_asserted(case_id, metric.name)
        ]
        if any(found is not None and _matters(found) for found in findings):
            lines.append(_line(metric, findings))
    return lines


def _line(metric: MetricSpec, findings: Sequence[Finding | None]) -> str:
    bounds = [bound for bound in map(_bound, findings) if bound is not None]
    reasons = Counter(_why_not(found) for found in findings if _bound(found) is None)
    texts = [f"{n} {'is' if n == 1 else 'are'} {reason}" for reason, n in reasons.items()]
    cases = counted(len(findings), "case")
    if not bounds:
        return f"{metric.title}: no verdict on {cases}; {', '.join(texts)}"
    most, each = max(bounds), " each" if len(bounds) > 1 else ""
    what = f"no slow-down above {at_most_percent(most - 1)}" if most > 1 else "no slow-down"
    sure = f"(99.5 % confidence{each})"
    if not texts:
        return f"{metric.title}: {what} in {cases} {sure}"
    number, _, first = texts[0].partition(" ")
    without = ", ".join([f"{number} of {cases} {first}", *texts[1:]])
    rest = "one" if len(bounds) == 1 else str(len(bounds))
    return f"{metric.title}: {without}; {what} in the other {rest} {sure}"


def _matters(finding: Finding) -> bool:
    return _bound(finding) is not None or finding.verdict.outcome is Outcome.INVALID


def _bound(finding: Finding | None) -> float | None:
    """Return the bound of the ratio that describes the code, or None without one."""
    if finding is None or finding.verdict.outcome not in _BOUNDED:
        return None
    return finding.verdict.upper


def _why_not(finding: Finding | None) -> str:
    if finding is None:
        return "not judged"
    if finding.excuse:
        return "disturbed"
    return _WITHOUT_BOUND.get(finding.verdict.outcome, "without a bound")


# Sentences on what ``--save-baseline`` stored, and on what it refused to store.


_HOW: dict[SaveMode, str] = {
    "missing": "stored in",
    "append": "appended to",
    "accept": "accepted as the new level in",
}


def saved_text(saved: Saved) -> str:
    """Return where and how a case was stored."""
    titles: dict[str, list[str]] = {}  # by reason
    for metric, why in saved.without.items():
        titles.setdefault(why, []).append(metric_title(metric))
    without = [f", without {', '.join(found)}: {why}" for why, found in titles.items()]
    text = f"{_HOW[saved.mode]} {saved.path}"
    if saved.beside is not None:
        began = saved.beside[:16].replace("T", " ")
        text += f"; it counts as one with the session of {began} UTC, less than 12 hours before"
    return f"{text}{''.join(without)}"


def refused_text(refused: Refused) -> str:
    """Return why a case was not stored."""
    return f"not stored: {refused.reason}"


def resolved_text(result: SuiteResult, finding: Finding) -> str:
    """Return where and how the figure of a settled finding was stored."""
    file = result.saved_structures.get(finding.case_id)
    if finding.metric == STRUCTURE and file is not None:
        return f"stored in {file}"
    return saved_text(result.saved[finding.case_id])


def saving_notes(result: SuiteResult) -> dict[str, str]:
    """Return one sentence for each case that was to be stored, by case id."""
    stored = {case_id: saved_text(saved) for case_id, saved in result.saved.items()}
    refused = {case_id: refused_text(found) for case_id, found in result.not_saved.items()}
    notes = {**stored, **refused}
    for case_id, file in result.saved_structures.items():
        notes[case_id] += f"; the structure is stored in {file}"
    return notes


# Sentences on the verdicts that no test asserts: they are shown, and not counted.


def untested_lines(result: SuiteResult) -> list[str]:
    """Return the number of cases that do not count, and a line for each that failed or is slower.

    There is no line if tests request every case that failed, and assert every other verdict. A case
    that the session did not judge before it ended has no verdict that a test could assert.
    """
    tested = {found.case_id for found in result.asserted_findings()}
    judged = {found.case_id for found in result.findings}
    cases = [
        case_id
        for case_id, measurement in result.measurements.items()
        if case_id not in tested and case_id in judged and not measurement.failed
    ]
    lines = [_not_counted(len(cases))] if cases and result.asserted is not None else []
    failed = [str(failure).splitlines()[0] for failure in untested_failures(result)]
    lines += [f"FAILED {NO_TEST}: {failure}" for failure in failed]
    return [*lines, *(_regression(found) for found in result.findings if _is_hidden(result, found))]


def untested_failures(result: SuiteResult) -> list[LaunchFailure]:
    """Return the first failure of each case that failed and that no test requests."""
    return [
        measurement.failures[0]
        for case_id, measurement in result.measurements.items()
        if measurement.failed and not result.is_requested(case_id)
    ]


def _not_counted(cases: int) -> str:
    verb, its = ("is", "its") if cases == 1 else ("are", "their")
    return (
        f"{NO_TEST}: {counted(cases, 'case')} {verb} measured and not counted: no test asserts"
        f" {its} verdicts"
    )


def _is_hidden(result: SuiteResult, finding: Finding) -> bool:
    return (
        finding.verdict.outcome.is_red
        and not finding.is_expected
        and not result.is_asserted(finding.case_id, finding.metric)
    )


def _regression(finding: Finding) -> str:
    ratio = finding.verdict.ratio
    size = "" if ratio is None else f": {ratio:.3f} × the baseline"
    if finding.target is not None or finding.verdict.outcome is Outcome.BAD_NODE:
        size = f": {finding.reason}"
    what = f"{metric_title(finding.metric)} of {finding.case_id}"
    return f"{finding.verdict.outcome.value} {NO_TEST}: {what}{size}"


# One row for each case. All files for other tools are written from these rows, so they agree.


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
    emulated_ranks: int | None  # of an emulated case: so many ranks, one of which ran
    batch_size: int | None  # per rank and micro-step
    global_batch: int | None  # samples of a step that all ranks share; None: weak scaling
    launches: int
    verdict: str
    status: Status
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

    @property
    def is_failed(self) -> bool:
        return self.verdict.startswith(FAILED)


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
    rows = tuple(row for suite in suites for row in case_rows(suite))
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
    stored = sum(row.verdict == STORED for row in tested)
    texts = {
        f"of {counted(len(tested), 'case')} red": number[Status.RED],
        "undecided": number[Status.UNDECIDED] - stored,
        "stored": stored,
        "passed": number[Status.GREEN],
    }
    return ", ".join(f"{many} {text}" for text, many in texts.items() if many)


def _with_suite(
    suites: Sequence[SuiteResult], lines_of: Callable[[SuiteResult], list[str]]
) -> tuple[str, ...]:
    lines = [(suite.suite, line) for suite in suites for line in lines_of(suite)]
    return tuple(f"{suite}: {line}" if len(suites) > 1 else line for suite, line in lines)


def by_suite(
    suites: Sequence[SuiteResult], rows: Sequence[CaseRow]
) -> list[tuple[SuiteResult, list[CaseRow]]]:
    """Return each suite with its rows; a suite may have the name of another one."""
    left = iter(rows)
    return [(suite, list(itertools.islice(left, len(suite.measurements)))) for suite in suites]


def case_rows(result: SuiteResult) -> list[CaseRow]:
    """Return a row for each case of a suite."""
    return [_row(result, case_id) for case_id in result.measurements]


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
        emulated_ranks=None if case.network is None else case.world_size,
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
        reason = str(failures[0]).removeprefix(f"{case_id}: ")
        verdict, status = FAILED, Status.RED
    elif not findings:
        verdict, status, reason = (
            NOT_JUDGED,
            Status.UNDECIDED,
            "the session ended before it judged this case; run it again",
        )
    else:
        finding = worst(result, findings)
        verdict, status = shown_verdict(result, finding), status_of(result, finding)
        reason = finding.excuse.facts[0] if finding.excuse else finding.reason
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
        "minimum_detectable": (
            found.minimum_detectable if found and finding and not finding.excuse else None
        ),
        "cause": _cause(result, case_id),
        **_targets(findings),
    }


def _targets(findings: Sequence[Finding]) -> dict[str, int | None]:
    """Return the number of targets and of those that are met; None without a target."""
    outcomes = [found.verdict.outcome for found in findings if found.target is not None]
    met = outcomes.count(Outcome.MEETS_TARGET)
    return {"targets": len(outcomes) or None, "targets_met": met if outcomes else None}


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
