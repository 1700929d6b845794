"""The launches of an audit, and their verdict by the stages of the session."""

from __future__ import annotations

import time

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.gate_audit import GateAudit
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import METRICS, STEP_TIME
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import LaunchError
from ddp_perf.session.audit.draw import HiddenSlowDown
from ddp_perf.session.measure.bench import Bench, Policy
from ddp_perf.session.measure.second_stage import Settle
from ddp_perf.session.measure.suite import SuiteRequest, run_suite
from ddp_perf.session.result import SuiteResult

_METRICS = {metric.name for metric in METRICS}
_WORST_FIRST = (
    *(Outcome.REGRESSION, Outcome.SUSPECT, Outcome.INVALID, Outcome.UNDECIDED),
    *(Outcome.PASS, Outcome.IMPROVEMENT),
)


class AuditRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The hidden slow-down, and what the session judged the same case by."""

    hidden: HiddenSlowDown
    baseline: Baseline  # before the session
    alpha: float  # chance of a false REGRESSION of each verdict by stored sessions


def run_audit(request: AuditRequest, bench: Bench, *, settle: Settle | None) -> GateAudit:
    """Launch the case with the hidden slow-down, and judge it blindly. Nothing is stored.

    ``settle`` is the second stage of the audit alone. The case is launched as often as its suite
    has it, without its one-rank case. Raises LaunchError also if a rank failed.
    """
    hidden, began = request.hidden, time.monotonic()
    case = msgspec.structs.replace(hidden.case, single=None)
    result = run_suite(
        SuiteRequest(
            suite=case.suite,
            cases=(case,),
            alpha=request.alpha,
            policy=Policy(budget_s=0.0, explain_budget_s=0.0),
            baseline=request.baseline,
            keeps_output=False,
        ),
        msgspec.structs.replace(bench, injections=hidden.injections),
        on_partial=lambda partial: None,
        settle=settle,
    )
    if failures := result.measurements[case.id].failures:
        raise LaunchError(str(failures[0]))
    return _audit_of(result, hidden, seconds=time.monotonic() - began)


def _audit_of(result: SuiteResult, hidden: HiddenSlowDown, *, seconds: float) -> GateAudit:
    case, where = hidden.case, result.environment
    step = result.finding(case.id, STEP_TIME.name)
    assert step is not None  # it was drawn since its step is gated
    assert step.tolerance is not None  # there is a baseline
    settled = result.settled.get(case.id)
    return GateAudit(
        date=result.date,
        suite=result.suite,
        case_id=case.id,
        tier=result.tier,
        accelerator=where.accelerator_key,
        host=where.host,
        commit=where.commit,
        torch=where.torch,
        seed=hidden.seed,
        size=hidden.size,
        tolerance=step.tolerance,
        outcome=_worst([found for found in result.findings if found.metric in _METRICS]),
        ratio=step.verdict.ratio,
        interval=step.verdict.interval,
        stage="pairs" if settled is not None and settled.pairs else "sessions",
        seconds=seconds,
    )


def _worst(findings: list[Finding]) -> Outcome:
    outcomes = {found.verdict.outcome for found in findings}
    return next(outcome for outcome in _WORST_FIRST if outcome in outcomes)
