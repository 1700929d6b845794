"""The stored baseline of a case on one accelerator type: its sessions and their figures."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.case import Scalar
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import Structure
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.metric_history import MetricHistory, history_of
from ddp_perf.core.published import PublishedTable
from ddp_perf.core.session import Session, are_apart

SCHEMA_VERSION = 1
STRUCTURE_VERSION = 1


class Rebaseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accepted change of the reference level: date, reason, and new ÷ old step time."""

    date: str
    commit: str | None
    reason: str
    ratio: float | None  # None: no older session had a level


class CaseBaseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is stored for one case."""

    work: dict[str, Scalar]  # the fingerprint: another value is another case, not a slower one
    source: Literal["measured", "published", "modelled"] = "measured"
    document: str | None = None  # source of a published or modelled figure
    structure: Structure | None = None
    flops: int | None = None  # of one step of a rank, counted
    flops_torch: str | None = None  # version of torch that counted them; None: there are none
    losses: dict[str, float] = {}  # mean of the ranks, by the number of the step; {}: none
    sessions: tuple[Session, ...]
    first: dict[str, float]  # medians of the first session ever saved: drift is relative to them
    log: tuple[Rebaseline, ...] = ()

    def sessions_with(self, metric: str) -> tuple[Session, ...]:
        """Return the stored sessions that have the metric, oldest first."""
        return tuple(session for session in self.sessions if session.values(metric))

    @property
    def has_level(self) -> bool:
        """True if a session has the level of the step, not only other metrics."""
        return bool(self.sessions_with(STEP_TIME.name))

    def session_beside(self, date: str, environment: Environment) -> str | None:
        """Return the date of the stored session with which one of ``date`` counts as one, or None.

        That is so if it began less than half a day before, on the same host of a pool.
        """
        begun: str | None = None
        for session in self.sessions:
            if session.environment.pooled_host != environment.pooled_host:
                continue
            if begun is None or are_apart(begun, session.date):
                begun = session.date
        return None if begun is None or are_apart(begun, date) else begun

    def history(self, metric: str) -> MetricHistory:
        """Return the stored sessions of a metric, by what they show of it."""
        accepted = sorted(entry.date for entry in self.log)
        return history_of(self.sessions_with(metric), metric, accepted)

    def reference(self, metric: str) -> tuple[Session, ...]:
        """Return the sessions that set the level of the metric."""
        return self.history(metric).reference

    def level(self, metric: str) -> float | None:
        """Return the level of the metric, or None if no session has it."""
        return self.history(metric).level


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An acknowledged regression: until a date it is reported with its reason and does not fail."""

    case: str
    metric: str
    reason: str
    until: str  # the last day, ISO 8601
    date: str  # when it was given, ISO 8601, UTC
    ratio: float | None = None  # to the level, as it was then; None: of a target or an exact metric
    # Of the metric "structure", and of "loss": what was measured. Nothing else is covered.
    structure: Structure | None = None
    flops: int | None = None
    losses: dict[str, float] = {}

    @property
    def has_size(self) -> bool:
        """True if it states what it covers."""
        return self.ratio is not None or self.structure is not None or bool(self.losses)

    def holds(self, date: str) -> bool:
        """Return whether it applies on the day of `date`, a session's date in UTC."""
        return date[: len(self.until)] <= self.until


class CaseStructure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The structure of one case, which is the same on every machine."""

    work: dict[str, Scalar]  # the fingerprint
    structure: Structure


class StructureBaseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of ``baselines/structure/``: the cases of one suite, by id."""

    schema_version: int = STRUCTURE_VERSION
    suite: str
    cases: dict[str, CaseStructure] = {}


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a file of ``baselines/``: every case of one accelerator type, by id."""

    accelerator: str
    units: dict[str, str]
    cases: dict[str, CaseBaseline] = {}
    published: tuple[PublishedTable, ...] = ()
    acknowledged: tuple[Acknowledgement, ...] = ()

    def acknowledgement(self, case_id: str, metric: str) -> Acknowledgement | None:
        """Return the acknowledgement of this case and metric, or None. There is at most one."""
        for found in self.acknowledged:
            if (found.case, found.metric) == (case_id, metric):
                return found
        return None
