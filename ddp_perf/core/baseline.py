"""The stored baseline of a case on one accelerator type: its sessions and their figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec

from ddp_perf.core.case import Scalar
from ddp_perf.core.decomposition import TERMS
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import Structure
from ddp_perf.core.published import PublishedTable
from ddp_perf.core.verdict import Outcome

SCHEMA_VERSION = 2
STRUCTURE_VERSION = 1
REFERENCE_SESSIONS = 5  # they set the reference level for good: a rolling level would absorb drift
LEAST_SESSIONS = 3  # with fewer, the between-session variance is assumed, not estimated
CONTROL = "control"  # the control's name among a launch's figures


class Session(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One session: for each launch one figure of each metric and of the control, by name."""

    date: str  # ISO 8601, UTC
    environment: Environment
    launches: tuple[dict[str, float], ...]
    terms: tuple[dict[str, float], ...] = ()  # of each launch: the terms of its step, s
    overhead_s: float | None = None  # of a launch, outside its timed steps; None: an older session
    # By metric, where the session was judged to be off the level: REGRESSION, SUSPECT, IMPROVEMENT.
    verdicts: dict[str, Outcome] = {}

    def values(self, metric: str) -> list[float]:
        """Return the figures of `metric`, one for each launch that has it."""
        return [launch[metric] for launch in self.launches if metric in launch]

    def has_terms(self) -> bool:
        """Return whether any launch has all terms of its step."""
        return any(terms.keys() >= set(TERMS) for terms in self.terms)


class Rebaseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accepted change of the reference level: date, reason, and new ÷ old step time."""

    date: str
    commit: str | None
    reason: str
    ratio: float


class CaseBaseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is stored for one case."""

    work: dict[str, Scalar]  # the fingerprint: another value is another case, not a slower one
    source: Literal["measured", "published", "modelled"] = "measured"
    document: str | None = None  # source of a published or modelled figure
    structure: Structure | None = None
    flops: int | None = None  # of one step of a rank, counted
    sessions: tuple[Session, ...]
    first: dict[str, float]  # medians of the first session ever saved: drift is relative to them
    log: tuple[Rebaseline, ...] = ()

    def sessions_with(self, metric: str) -> tuple[Session, ...]:
        """Return the stored sessions that have the metric, oldest first."""
        return tuple(session for session in self.sessions if session.values(metric))

    def reference(self, metric: str) -> tuple[Session, ...]:
        """Return the sessions that set the level: the first `REFERENCE_SESSIONS` with the metric.

        A metric that was added later has later reference sessions.
        """
        return first_sessions(self.sessions_with(metric))

    def reference_of_terms(self) -> tuple[Session, ...]:
        """Return the reference sessions of the terms, by the rule of `reference`.

        They are those of the step time, or later ones if the terms were added later.
        """
        return first_sessions([session for session in self.sessions if session.has_terms()])

    def level(self, metric: str) -> float | None:
        """Return the median over the reference sessions of each session's median.

        None if no session has the metric.
        """
        medians = [statistics.median(session.values(metric)) for session in self.reference(metric)]
        return statistics.median(medians) if medians else None


def first_sessions(sessions: Sequence[Session]) -> tuple[Session, ...]:
    """Return the sessions that set a level, of ``sessions`` oldest first."""
    return tuple(sessions[:REFERENCE_SESSIONS])


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An acknowledged regression: until a date it is reported with its reason and does not fail."""

    case: str
    metric: str
    reason: str
    until: str  # the last day, ISO 8601
    date: str  # when it was given, ISO 8601, UTC

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
