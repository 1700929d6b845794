"""What is kept of every session, and how it is read again: session by session."""

from __future__ import annotations

import msgspec

from ddp_perf.core.case import Scalar, Tier
from ddp_perf.core.environment import Environment
from ddp_perf.core.verdict import Outcome, Verdict


class RecordedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one case in one session."""

    metric: str
    value: float | None  # median over the launches; None: of what is no figure, as structure
    launches: tuple[float, ...] = ()
    verdict: Verdict | None = None  # None: not gated
    baseline: float | None = None  # the level it was judged against
    disturbance: str | None = None  # what made its launches worth nothing, judged or not

    @property
    def is_sound(self) -> bool:
        """Whether the figure is the case's own, not that of a disturbance."""
        invalid = self.verdict is not None and self.verdict.outcome is Outcome.INVALID
        return self.value is not None and self.disturbance is None and not invalid


class CaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One case in one session. Other work is another series, whatever its id."""

    case_id: str
    work: dict[str, Scalar]  # the fingerprint
    figures: tuple[RecordedFigure, ...]


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """When and where; with its first launch it names one session among all of a fleet."""

    suite: str
    tier: Tier
    date: str  # ISO 8601, UTC
    started: str  # its first launch, ISO 8601, UTC
    environment: Environment
    injections: tuple[str, ...] = ()  # what slowed its ranks on purpose


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that is kept of one suite of one session."""

    info: SessionInfo
    cases: tuple[CaseRecord, ...]


class StoredCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case on one kind of machine, as the history knows it."""

    key: int  # of the store
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
        """The sessions that say something of the case: undisturbed, not slowed on purpose."""
        return [n for n in self.sessions if n.figure.is_sound and not n.session.injections]
