"""``ddp-perf baseline promote``: a results file stored as ``--save-baseline`` would have."""

from __future__ import annotations

import msgspec

from ddp_perf.baselines.save import SaveMode, is_stored
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline, CaseBaseline, Session
from ddp_perf.errors import BaselineError
from ddp_perf.session.gate import Bar, confirm_suspects, judge_suite
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.saving import new_sessions, save


def promote(
    result: SuiteResult, store: BaselineStore, *, mode: SaveMode, reason: str | None
) -> SuiteResult:
    """The result with ``saved`` and ``not_saved`` of this promotion.

    Raises BaselineError where its ranks were slowed on purpose, or the file cannot be written.
    """
    if result.injections:
        raise BaselineError(
            f"{result.suite}: what --ddp-inject slowed is no baseline"
            f" ({', '.join(result.injections)})"
        )
    key = result.environment.accelerator_key
    baseline = store.load(key)
    too_late = {
        new.case.id: f"not stored: {why}"
        for new in new_sessions(result)
        if (why := _too_late(new.session, baseline.cases.get(new.case.id), mode))
    }
    fresh = msgspec.structs.replace(
        _judged_again(result, baseline, store), saved={}, not_saved=too_late
    )
    wanted = [case_id for case_id in result.measurements if case_id not in too_late]
    return save(fresh, wanted, baseline, store, mode=mode, reason=reason)


def _too_late(session: Session, stored: CaseBaseline | None, mode: SaveMode) -> str | None:
    """What no session can be that has just been measured."""
    if stored is None:
        return None
    if is_stored(stored, session):
        return "this very session is stored already"
    newest = max((night.date for night in stored.sessions), default="")
    if mode == "append" and session.date < newest:
        return (
            f"of {session.date}, older than the newest stored session, of {newest}; they are"
            " kept in the order of their dates (promote the oldest first)"
        )
    return None


def _judged_again(result: SuiteResult, baseline: Baseline, store: BaselineStore) -> SuiteResult:
    """Its verdicts are of its own day, and what was stored since may speak against it."""
    bar = Bar(
        baseline=baseline,
        baseline_path=str(store.path(baseline.accelerator)),
        structures=store.load_structures(result.suite),
        environment=result.environment,
        alpha=result.alpha,
    )
    findings = judge_suite(result.measurements, result.summaries, bar)
    cases = {case_id: measured.case for case_id, measured in result.measurements.items()}
    return msgspec.structs.replace(
        result,
        baseline_path=bar.baseline_path,
        findings=tuple(confirm_suspects(findings, cases, bar)),
    )
