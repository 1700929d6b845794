"""``--save-baseline``: what of a session is stored, and what cannot be."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

import msgspec

from ddp_perf.baselines.save import (
    NewSession,
    Refused,
    Saved,
    SaveMode,
    Saving,
    is_comparable,
    known_structure,
    merge,
    merge_structures,
    new_metrics,
    too_noisy,
    without_figures,
)
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import CONTROL, TYPICAL_STEP, Baseline, CaseBaseline, Session
from ddp_perf.core.launch import first_structure
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import (
    EFFICIENCY,
    EXACT,
    LOSS,
    METRICS,
    NODES,
    STEP_TIME,
    TAIL,
    gated_metrics,
)
from ddp_perf.core.note import NoteKind
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.comparability import other_machine
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.gate.exact import (
    counted_flops,
    loss_tolerance,
    losses_to_store,
    why_not_stored,
)
from ddp_perf.session.gate.nodes import slow_since
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.summary import as_session

# The metrics of a measured case that cannot be stored: disturbed, INVALID, or too noisy.


_OF_THE_STEP = (STEP_TIME.name, TAIL.name, EFFICIENCY.name)


def reasons_to_leave_out(new: NewSession, result: SuiteResult, mode: SaveMode) -> dict[str, str]:
    """Return why metrics of a case cannot be stored, by metric; the others can.

    The outcome of a session by itself counts: a case that stays red may be INVALID underneath. A
    machine that changed may be accepted: its figures are measured, and only not comparable.
    """
    case_id, measured = new.case.id, result.measurements
    reasons = {
        metric.name: why
        for metric in METRICS
        if (why := prevailing_disturbance(case_id, measured, metric.name)) is not None
    }
    for found in result.findings:
        outcome = found.by_itself or found.verdict.outcome
        if found.case_id != case_id or outcome is not Outcome.INVALID:
            continue
        if mode != "accept" or found.verdict.ratio is None:
            reasons.setdefault(found.metric, f"the measurement is INVALID: {found.reason}")
    if (why := too_noisy(new)) is not None:
        reasons = {**dict.fromkeys(_OF_THE_STEP, why), **reasons}
    return {
        metric: why
        for metric, why in reasons.items()
        if metric == LOSS or new.session.values(metric)
    }


def reasons_of_other_work(case_id: str, result: SuiteResult, mode: SaveMode) -> dict[str, str]:
    """Return why no metric of code that does other work can be stored: it would set a level.

    Its losses and its structure are exact, so more launches do not change that.
    """
    if mode == "accept":
        return {}
    for exact in EXACT:
        found = result.finding(case_id, exact)
        is_red = found is not None and found.verdict.outcome is Outcome.REGRESSION
        if found is not None and is_red and not found.is_expected:
            why = f"the {exact} is another one: {found.reason}"
            return {metric.name: why for metric in METRICS}
    return {}


def _nothing_left(
    new: NewSession,
    fit: NewSession,
    stored: CaseBaseline | None,
    reasons: Mapping[str, str],
    mode: SaveMode,
) -> str | None:
    """Return why the whole case cannot be stored, or None; ``fit`` is what can be.

    That is so if no gated metric is left, if a new level would begin without a step time, or if
    ``missing`` would add nothing.
    """
    left = [metric for metric in gated_metrics(new.case) if new.session.values(metric)]
    whys = {metric: why for metric, why in reasons.items() if metric != LOSS}
    if whys and (whys.keys() >= set(left) or (mode == "accept" and STEP_TIME.name in whys)):
        return whys.get(STEP_TIME.name) or next(iter(whys.values()))
    if mode == "missing" and stored is not None and not new_metrics(stored, fit):
        lacking = new_metrics(stored, new)
        return next(why for metric, why in reasons.items() if metric in lacking)
    return None


def without(new: NewSession, metrics: Collection[str]) -> NewSession:
    """Return the session without the figures of some metrics, and what is compared with them.

    Without a step time there are no terms. The control stays if a metric that follows it does.
    """
    dropped = set(metrics)
    if STEP_TIME.name in dropped:
        dropped.add(TYPICAL_STEP)
    follow = [metric.name for metric in METRICS if metric.follows_machine]
    if not any(new.session.values(name) for name in follow if name not in dropped):
        dropped.add(CONTROL)
    return msgspec.structs.replace(new, session=without_figures(new.session, dropped))


# ``--save-baseline`` of structures: they are of every machine, and committed with the code.
#
# They need one launch and no quiet machine, so they are stored even if the session is not.


def save_structures(
    result: SuiteResult,
    sessions: Sequence[NewSession],
    baseline: Baseline,
    store: BaselineStore,
    *,
    mode: SaveMode,
) -> SuiteResult:
    """Store the structures that ``mode`` selects, and return the result with them.

    ``baseline`` is the one before the session. Raises BaselineError if the file cannot be written.
    """
    change = functools.partial(merge_structures, sessions=sessions, baseline=baseline, mode=mode)
    before = store.work.load(result.suite, None)
    if change(before) == before:
        return result
    after = store.work.update(result.suite, None, change)
    stated = {
        new.case.id: str(store.work.path(result.suite, None))
        for new in sessions
        if new.structure is not None
        and known_structure(new.case, after.cases) == new.structure
        and known_structure(new.case, before.cases) != new.structure
    }
    return msgspec.structs.replace(result, saved_structures={**result.saved_structures, **stated})


# Which cases of a session are stored.


# What a stored session is marked with. One on a slow node does not inform the level either.
_OFF_LEVEL = {
    Outcome.REGRESSION: Outcome.REGRESSION,
    Outcome.BAD_NODE: Outcome.REGRESSION,
    Outcome.SUSPECT: Outcome.SUSPECT,
    Outcome.IMPROVEMENT: Outcome.IMPROVEMENT,
}


def save(
    result: SuiteResult,
    case_ids: Collection[str],
    baseline: Baseline,
    store: BaselineStore,
    saving: Saving,
    *,
    refused: Mapping[str, Refused] = {},
    is_recorded: bool = False,
) -> SuiteResult:
    """Store every case that ``saving`` selects and no rule refuses, and return the result with it.

    Nothing of a case in ``refused`` is stored, nor of one with a newer session; of others that are
    refused, the structure is. ``baseline`` is the one before the session. One that ``is_recorded``
    in a file may be in it, and is not stored twice. Raises BaselineError if a file cannot be
    written.
    """
    mode = saving.mode
    refused = {case_id: why for case_id, why in refused.items() if case_id in case_ids}
    ids = set(case_ids) - refused.keys()
    fresh, stale = _fresh(result, ids, baseline, mode, is_recorded=is_recorded)
    result = save_structures(result, fresh, baseline, store, mode=mode)
    sessions, result = _selected(result, fresh, baseline, mode, {**stale, **refused})
    if sessions:
        if saving.patch and (tree := result.environment.tree) is not None:
            store.keep_patch(tree, saving.patch)
        store.update(
            baseline.accelerator,
            lambda current: merge(current, sessions, mode=mode, reason=saving.reason),
        )
    return result


def append(result: SuiteResult, baseline: Baseline) -> tuple[Baseline, SuiteResult]:
    """Return the baseline with the judged session, and the result with what was stored of it.

    No file is read or written. A session that is stored, or is older than a stored one, is refused.
    The structures of a suite are those of today's code, so an older session adds none to them.
    """
    fresh, stale = _fresh(result, result.measurements, baseline, "append", is_recorded=True)
    sessions, result = _selected(result, fresh, baseline, "append", {})
    result = msgspec.structs.replace(result, not_saved={**result.not_saved, **stale})
    return merge(baseline, sessions, mode="append", reason=None), result


def _selected(
    result: SuiteResult,
    measured: Sequence[NewSession],
    baseline: Baseline,
    mode: SaveMode,
    refused: Mapping[str, Refused],
) -> tuple[list[NewSession], SuiteResult]:
    """Return the cases to store, and the result with what is stored and what is refused."""
    saved: dict[str, Saved] = {}
    not_saved = dict(refused)
    sessions: list[NewSession] = []
    for new in measured:
        stored = baseline.cases.get(new.case.id)
        left_out = reasons_to_leave_out(new, result, mode)
        other_work = reasons_of_other_work(new.case.id, result, mode)
        reasons = {**_without_losses(new, result), **other_work, **left_out}
        fit = without(new, {*reasons, *_stored_already(new, stored, mode)})
        why_not = refusal(new, stored, mode) or _nothing_left(new, fit, stored, reasons, mode)
        if why_not is not None:
            of_machine = why_not in left_out.values()
            not_saved[new.case.id] = Refused(
                reason=why_not, cause="machine" if of_machine else None
            )
            continue
        same_machine = stored is None or _other_machine(new, stored) is None
        fit = msgspec.structs.replace(fit, same_machine=same_machine)
        sessions.append(fit if mode == "accept" else _with_verdicts(fit, result))
        begun = result.date, result.environment
        shown = (*gated_metrics(new.case), LOSS)
        saved[new.case.id] = Saved(
            path=result.baseline_path,
            mode=mode,
            without={name: why for name, why in reasons.items() if name in shown},
            beside=stored.session_beside(*begun) if stored and mode == "append" else None,
        )
    result = msgspec.structs.replace(
        result,
        save_mode=mode,
        saved={**result.saved, **saved},
        not_saved={**result.not_saved, **not_saved},
    )
    findings = tuple(
        _with_refusal(found, not_saved.get(found.case_id), saved.get(found.case_id))
        for found in result.findings
    )
    return sessions, msgspec.structs.replace(result, findings=findings)


def _without_losses(new: NewSession, result: SuiteResult) -> dict[str, str]:
    """Return why a session that is red by its losses stores none of them; else nothing.

    So it stays red even if it is accepted: the next session would not be compared with them.
    """
    found = result.finding(new.case.id, LOSS)
    if found is None or found.verdict.outcome is not Outcome.REGRESSION:
        return {}
    assert found.tolerance is not None  # of the loss: it was judged
    launches = result.measurements[new.case.id].launches
    why = why_not_stored(launches, found.tolerance)
    return {} if why is None else {LOSS: why}


def _with_refusal(finding: Finding, refused: Refused | None, saved: Saved | None) -> Finding:
    """Return a finding without a baseline with the reason why this session gives none either.

    Its usual reason advises to store the session.
    """
    why = refused.reason if refused else saved.without.get(finding.metric) if saved else None
    if why is None or finding.verdict.outcome is not Outcome.NO_BASELINE:
        return finding
    return msgspec.structs.replace(finding, notes=()).noted(NoteKind.NOT_STORED, why)


def _fresh(
    result: SuiteResult,
    case_ids: Collection[str],
    baseline: Baseline,
    mode: SaveMode,
    *,
    is_recorded: bool,
) -> tuple[list[NewSession], dict[str, Refused]]:
    """Return the sessions of these cases that are not stale, and why the others are refused."""
    fresh, refused = [], {}
    for new in new_sessions(result):
        if new.case.id in case_ids:
            stored = baseline.cases.get(new.case.id)
            sessions = stored.sessions if stored is not None else ()
            if is_recorded and mode != "accept" and _is_one_of(sessions, new.session):
                refused[new.case.id] = Refused(reason="this session is already stored")
            elif mode != "missing" and (why := _too_late(sessions, new.session)) is not None:
                refused[new.case.id] = Refused(reason=why)
            else:
                fresh.append(new)
    return fresh, refused


def _is_one_of(sessions: Sequence[Session], new: Session) -> bool:
    """Return whether the session is stored; what `thin` dropped of it does not count."""
    return (new.date, new.environment) in [(one.date, one.environment) for one in sessions]


def _too_late(sessions: Sequence[Session], new: Session) -> str | None:
    """Return why a session before the newest stored one cannot be stored now, or None."""
    newest = max((session.date for session in sessions), default="")
    if new.date >= newest:
        return None
    return (
        f"the session of {new.date} is older than the newest stored one, of {newest}; replay"
        " the results files in the order of their dates (ddp-perf judge --append), or accept"
        " the newest session. If it is of now, the clock was wrong: correct it, or the stored date"
    )


def new_sessions(result: SuiteResult) -> Sequence[NewSession]:
    """Return each case without a failed launch in the form of a stored session."""
    return [
        NewSession(
            case=measurement.case,
            session=_session(result, case_id),
            structure=first_structure(measurement.launches),
            flops=counted_flops(measurement.launches),
            losses=losses_to_store(
                measurement.launches, loss_tolerance(measurement.case, measurement.launches)
            ),
        )
        for case_id, measurement in result.measurements.items()
        if measurement.is_complete
    ]


def _session(result: SuiteResult, case_id: str) -> Session:
    """Return the launches of a case as a session, with the nodes that are slower than the others.

    They are slow in a session of any mode: an accepted level is that of the other nodes.
    """
    session = as_session(result.summaries[case_id], result.environment, result.date)
    slow = slow_since(result.finding(case_id, NODES), result.date)
    return msgspec.structs.replace(session, slow_nodes=slow)


def _with_verdicts(new: NewSession, result: SuiteResult) -> NewSession:
    """Add the metrics of the session that were judged to be off the level."""
    own = [found for found in result.findings if found.case_id == new.case.id]
    verdicts = {
        found.metric: _OFF_LEVEL[found.verdict.outcome]
        for found in own  # structure and loss have no values
        if found.verdict.outcome in _OFF_LEVEL and new.session.values(found.metric)
    }
    off_level = {found.metric: found.off_level for found in own if found.off_level}
    session = msgspec.structs.replace(new.session, verdicts=verdicts)
    return msgspec.structs.replace(new, session=session, off_level=off_level)


def refusal(new: NewSession, stored: CaseBaseline | None, mode: SaveMode) -> str | None:
    """Return why ``mode`` does not store the case, however quiet it was, or None if it does."""
    if stored is not None and mode != "accept":
        if mode == "missing" and not new_metrics(stored, new):
            return "a baseline is stored already (--save-baseline=append adds a session to it)"
        if not is_comparable(stored, new.case):
            return "the stored figures are of other work (accept replaces them)"
        if (other := _other_machine(new, stored)) is not None:
            return f"{other} (accept replaces what is stored)"
    if len(new.session.launches) < 2:
        return "one launch has no spread; measure at least 2 launches (--ddp-launches)"
    return None


def _stored_already(
    new: NewSession, stored: CaseBaseline | None, mode: SaveMode
) -> Collection[str]:
    """Return the metrics that ``missing`` does not store, because the step's level is stored.

    While the step has none, the session is stored whole.
    """
    if mode != "missing" or stored is None or not stored.has_level:
        return ()
    return {metric.name for metric in METRICS} - new_metrics(stored, new)


def _other_machine(new: NewSession, stored: CaseBaseline) -> str | None:
    case = new.case
    return other_machine(
        stored, new.session.environment, world_size=case.run_ranks, nodes=case.nodes
    )
