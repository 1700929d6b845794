"""The values that the history stores of each session, and their making from a suite's result."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import msgspec

from ddp_perf.core.baseline import CONTROL, TYPICAL_STEP, Session
from ddp_perf.core.case import Scalar, Tier
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import EXACT, METRICS, STEP_TIME, TARGETS
from ddp_perf.core.verdict import Outcome, Settled, Verdict
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import new_sessions

# The values that the history stores of each session, and the series that it returns.


class RecordedVerdict(Verdict, frozen=True, kw_only=True):
    """A verdict as the history keeps it: with what people and the second stage said of it."""

    acknowledged: str | None = None  # the reason, of a regression that was expected
    settled: Settled | None = None  # of the case, if the second stage ran


class RecordedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one case in one session."""

    metric: str
    value: float | None  # median over the launches; None: structure, loss and targets have none
    launches: tuple[float, ...] = ()
    verdict: RecordedVerdict | None = None  # None: not gated
    baseline: float | None = None  # the level that the verdict compares with
    disturbance: str | None = None  # why its launches are not usable, judged or not

    @property
    def is_sound(self) -> bool:
        """True if there is a figure, and no disturbance made it useless."""
        invalid = self.verdict is not None and self.verdict.outcome is Outcome.INVALID
        has_figure = self.value is not None and self.value > 0
        return has_figure and self.disturbance is None and not invalid


class CaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One case in one session. Other work belongs to another series, even with the same id."""

    case_id: str
    work: dict[str, Scalar]  # the fingerprint
    figures: tuple[RecordedFigure, ...]


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The date and the machine of a session. They identify it among all sessions of a fleet."""

    suite: str
    tier: Tier
    date: str  # ISO 8601, UTC
    started: str  # of its first launch, ISO 8601, UTC
    environment: Environment
    injections: tuple[str, ...] = ()  # slow-downs that were injected on purpose
    job: str = ""  # address of the CI job that measured it; empty: none did

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """The key of the session: no other one of a fleet has it."""
        where = self.environment
        return where.accelerator_key, where.host, self.suite, self.date, self.started


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One suite of one session, as the history stores it."""

    info: SessionInfo
    cases: tuple[CaseRecord, ...]


class StoredCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case on one kind of machine, as the history stores it."""

    key: int  # primary key in the store
    accelerator: str  # the key that names its baseline file
    case_id: str
    work: dict[str, Scalar]


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a case, with the session that measured it."""

    session: SessionInfo
    figure: RecordedFigure


class TimeSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of a case over all its sessions, oldest first."""

    case: StoredCase
    metric: str
    sessions: tuple[HistoryPoint, ...]

    def sound(self) -> list[HistoryPoint]:
        """Return the sessions that are usable: neither disturbed nor slowed on purpose."""
        return [n for n in self.sessions if n.figure.is_sound and not n.session.injections]


# The conversion of a suite's result into the record that the history stores.


_KEPT = (*(metric.name for metric in METRICS), TYPICAL_STEP, CONTROL)
_WITHOUT_FIGURES = (*EXACT, *(target.name for target in TARGETS))  # their verdicts state all


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
            job=result.job,
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
    settled = result.settled.get(case_id)
    for metric in _KEPT:
        values, finding = session.values(metric), result.finding(case_id, metric)
        like = STEP_TIME.name if metric == TYPICAL_STEP else metric
        if values:
            yield _figure(metric, values, finding, settled, _disturbance(result, case_id, like))
    for metric in _WITHOUT_FIGURES:
        if (finding := result.finding(case_id, metric)) is not None:
            yield _figure(metric, [], finding, settled, None)


def _disturbance(result: SuiteResult, case_id: str, metric: str) -> str | None:
    """Return the disturbance of a metric.

    It is computed again here, because a finding has it only if there is a baseline to compare with.
    """
    return prevailing_disturbance(case_id, result.measurements, metric)


def _figure(
    metric: str,
    values: list[float],
    finding: Finding | None,
    settled: Settled | None,
    disturbance: str | None,
) -> RecordedFigure:
    return RecordedFigure(
        metric=metric,
        value=statistics.median(values) if values else None,
        launches=tuple(values),
        verdict=None if finding is None else _verdict(finding, settled),
        baseline=finding.baseline if finding else None,
        disturbance=disturbance,
    )


def _verdict(finding: Finding, settled: Settled | None) -> RecordedVerdict:
    known = finding.known if finding.is_expected else None
    return RecordedVerdict(
        **msgspec.structs.asdict(finding.verdict) | {"reason": finding.reason},
        acknowledged=None if known is None else known.acknowledgement.reason,
        settled=settled,
    )


def _first_launch(result: SuiteResult) -> str:
    """Return when the first launch started, or "" if none finished.

    It does not change while further launches are added to the session.
    """
    started = [m.launches[0].started for m in result.measurements.values() if m.launches]
    return started[0] if started else ""
