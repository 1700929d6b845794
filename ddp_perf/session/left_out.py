"""The metrics of a measured case that cannot be stored: disturbed, INVALID, or too noisy."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from ddp_perf.baselines.save import NewSession, SaveMode, too_noisy
from ddp_perf.core.metric import (
    EFFICIENCY,
    EXACT,
    LOSS,
    METRICS,
    STEP_TIME,
    TAIL,
    gated_metrics,
)
from ddp_perf.core.session import CONTROL, TYPICAL_STEP
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.result import SuiteResult

_OF_THE_STEP = (STEP_TIME.name, TAIL.name, EFFICIENCY.name)


def reasons_to_leave_out(new: NewSession, result: SuiteResult, mode: SaveMode) -> dict[str, str]:
    """Return why metrics of a case cannot be stored, by metric; the others can.

    The outcome of a session by itself counts: a case that stays red may be INVALID underneath. A
    machine that changed may be accepted: its figures are measured, and only not comparable.
    """
    case_id, reasons = new.case.id, {}
    for metric in METRICS:
        if (why := prevailing_disturbance(case_id, result.measurements, metric.name)) is not None:
            reasons[metric.name] = why
    for found in result.findings:
        outcome = found.by_itself or found.verdict.outcome
        if found.case_id != case_id or outcome is not Outcome.INVALID:
            continue
        if mode != "accept" or found.verdict.ratio is None:
            reasons.setdefault(found.metric, f"the measurement is INVALID: {found.verdict.reason}")
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
            why = f"the {exact} is another one: {found.verdict.reason}"
            return {metric.name: why for metric in METRICS}
    return {}


def nothing_left(new: NewSession, reasons: Mapping[str, str], mode: SaveMode) -> str | None:
    """Return why the whole case cannot be stored, or None.

    That is so if no gated metric is left, or if a new level would begin without a step time.
    """
    left = [
        metric
        for metric in gated_metrics(new.case)
        if new.session.values(metric) and metric not in reasons
    ]
    reasons = {metric: why for metric, why in reasons.items() if metric != LOSS}
    if reasons and (not left or (mode == "accept" and STEP_TIME.name in reasons)):
        return reasons.get(STEP_TIME.name) or next(iter(reasons.values()))
    return None


def without(new: NewSession, metrics: Collection[str]) -> NewSession:
    """Return the session without the figures of some metrics, and what is compared with them.

    Without a step time there are no terms. The control stays if a metric that follows it does.
    """
    dropped, session = set(metrics), new.session
    if STEP_TIME.name in dropped:
        dropped.add(TYPICAL_STEP)
        session = msgspec.structs.replace(session, terms=())
    follow = [metric.name for metric in METRICS if metric.follows_machine]
    if not any(session.values(name) for name in follow if name not in dropped):
        dropped.add(CONTROL)
    launches = tuple(
        {name: value for name, value in launch.items() if name not in dropped}
        for launch in session.launches
    )
    return msgspec.structs.replace(new, session=msgspec.structs.replace(session, launches=launches))
