"""The values that the history stores of each session, and the series that it returns."""

from __future__ import annotations

import msgspec

from ddp_perf.core.case import Scalar, Tier
from ddp_perf.core.environment import Environment
from ddp_perf.core.verdict import Outcome, Verdict


class RecordedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one case in one session."""

    metric: str
    value: (
        float | None
    )  # median over the launches; None: the metric has no figure (structure, loss)
    launches: tuple[float, ...] = ()
    verdict: Verdict | None = None  # None: not gated
    baseline: float | None = None  # the level that the verdict compares with
    disturbance: str | None = None  # why its launches are not usable, judged or not

    @property
    def is_sound(self) -> bool:
        """True if there is a figure, and no disturbance made it useless."""
        invalid = self.verdict is not None and self.verdict.outcome is Outcome.INVALID
        return self.value is not None and self.disturbance is None and not invalid


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
