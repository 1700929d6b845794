"""The audit of the gate: a session ends with launches that a hidden size slows on purpose."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterable

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection, parse_injection
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import METRICS, STEP_TIME
from ddp_perf.core.verdict import GateAudit, Outcome
from ddp_perf.errors import LaunchError
from ddp_perf.session.measure.rounds import Bench, SessionOptions
from ddp_perf.session.measure.storable import Settle
from ddp_perf.session.measure.suite import SuiteRequest, run_suite
from ddp_perf.session.result import SuiteResult

# The draw of an audit: which case is slowed, and by how much. Only its record shows the size.


_SMALLEST, _LARGEST = 0.01, 0.10
_OF_NOTHING = 0.5  # of the audits: what is not slowed must not be called slower
_JUDGED = (Outcome.PASS, Outcome.UNDECIDED, Outcome.INVALID)


class HiddenSlowDown(msgspec.Struct, frozen=True, kw_only=True):
    """The case that is launched again, and the share by which its step is slowed."""

    case: Case
    size: float  # 0: nothing
    seed: int

    @property
    def injections(self) -> tuple[Injection, ...]:
        return (parse_injection(f"compute:{100 * self.size:.1f}%"),) if self.size else ()


def draw_slow_down(results: Iterable[SuiteResult]) -> HiddenSlowDown | None:
    """Draw a case of the session and a size; None if no case can be audited.

    The same session draws the same again.
    """
    results = sorted(results, key=lambda result: result.suite)
    cases = [case for result in results for case in _auditable(result)]
    if not cases:
        return None
    where = results[0].environment
    seed = _seed(results[0].date, where.commit or "", where.host)
    source = random.Random(seed)
    case = source.choice(cases)
    is_nothing = source.random() < _OF_NOTHING
    size = 0.0 if is_nothing else round(source.uniform(_SMALLEST, _LARGEST), 3)
    return HiddenSlowDown(case=case, size=size, seed=seed)


def _seed(*texts: str) -> int:
    """Return a seed of 31 bits, which any database has room for."""
    digest = hashlib.sha256("\n".join(texts).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _auditable(result: SuiteResult) -> list[Case]:
    """Return the cases that the session compares with stored ones, by id.

    A case that is slower or faster in the session itself is none: nobody could say whether its
    audit shows that or the hidden size.
    """
    measured = sorted(result.measurements.items())
    cases = [one.case for _, one in measured if one.is_complete and not one.nodes]
    return [case for case in cases if is_auditable(case) and _is_as_before(result, case)]


def is_auditable(case: Case) -> bool:
    """Return whether the ranks of the case can be slowed, on this machine."""
    return case.trains and case.launcher == "forkserver"


def _is_as_before(result: SuiteResult, case: Case) -> bool:
    step = result.finding(case.id, STEP_TIME.name)
    if step is None or step.verdict.outcome not in _JUDGED:
        return False
    if step.verdict.assumed_sd is not None:  # too few sessions show how much they differ
        return False
    own = [found for found in result.findings if found.case_id == case.id]
    return not any(found.verdict.outcome.is_slower for found in own)


# The launches of an audit, and their verdict by the stages of the session.


_METRICS = {metric.name for metric in METRICS}


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
            options=SessionOptions(budget_s=0.0, explain_budget_s=0.0),
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
    outcomes = {outcome for outcome in outcomes if outcome.compares_sessions}
    return min(outcomes, key=lambda outcome: (not outcome.is_slower, outcome.severity))
