"""The conversion of a suite's result into the record that the history stores."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import EXACT, METRICS, STEP_TIME
from ddp_perf.core.session import CONTROL, TYPICAL_STEP, Session
from ddp_perf.history.records import CaseRecord, RecordedFigure, SessionInfo, SessionRecord
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import new_sessions

_KEPT = (*(metric.name for metric in METRICS), TYPICAL_STEP, CONTROL)


def record_of(result: SuiteResult) -> SessionRecord:
    """Return a record of every case without a failed launch, whatever its verdicts are."""
    measured = new_sessions(result)
    return SessionRecord(
        info=SessionInfo(
            suite=result.suite,
            tier=result.tier,
            date=result.date,
            started=_first_launch(result),
            environment=result.environment,
            injections=result.injections,
        ),
        cases=tuple(
            CaseRecord(
                case_id=new.case.id,
                work=new.case.work(),
                figures=tuple(_figures(result, new.case.id, new.session)),
            )
            for new in measured
        ),
    )


def _figures(result: SuiteResult, case_id: str, session: Session) -> Iterator[RecordedFigure]:
    for metric in _KEPT:
        values, finding = session.values(metric), result.finding(case_id, metric)
        like = STEP_TIME.name if metric == TYPICAL_STEP else metric
        if values:
            yield _figure(metric, values, finding, _disturbance(result, case_id, like))
    for metric in EXACT:
        if (finding := result.finding(case_id, metric)) is not None:
            yield _figure(metric, [], finding, None)


def _disturbance(result: SuiteResult, case_id: str, metric: str) -> str | None:
    """Return the disturbance of a metric.

    It is computed again here, because a finding has it only if there is a baseline to compare with.
    """
    return prevailing_disturbance(case_id, result.measurements, metric)


def _figure(
    metric: str, values: list[float], finding: Finding | None, disturbance: str | None
) -> RecordedFigure:
    return RecordedFigure(
        metric=metric,
        value=statistics.median(values) if values else None,
        launches=tuple(values),
        verdict=finding.verdict if finding else None,
        baseline=finding.baseline if finding else None,
        disturbance=disturbance,
    )


def _first_launch(result: SuiteResult) -> str:
    """Return when the first launch started, or "" if none finished.

    It does not change while further launches are added to the session.
    """
    started = [m.launches[0].started for m in result.measurements.values() if m.launches]
    return started[0] if started else ""
