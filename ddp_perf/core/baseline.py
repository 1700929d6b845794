"""The stored baseline of a case: its sessions, and the series of each of its metrics."""

from __future__ import annotations

import bisect
import datetime
import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from ddp_perf.core.case import Scalar
from ddp_perf.core.decomposition import TERMS
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import Structure
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.published import PublishedTable
from ddp_perf.core.verdict import Outcome

# A stored session of a case: its figures, and whether it counts beside another one.


HALF_DAY = datetime.timedelta(hours=12)  # sessions that are closer count as one
CONTROL = "control"  # the control's name among a launch's figures
TYPICAL_STEP = "median_step_time"  # the name of its median step, which is stored but not gated


class Session(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One session: for each launch one figure of each metric and of the control, by name."""

    date: str  # ISO 8601, UTC
    environment: Environment
    launches: tuple[dict[str, float], ...]
    terms: tuple[dict[str, float], ...] = ()  # of each launch: the terms of its step, s
    overhead_s: float  # of a launch, outside its timed steps
    # By metric, where the session was judged to be off the level: REGRESSION, SUSPECT, IMPROVEMENT.
    verdicts: dict[str, Outcome] = {}
    # Of alike nodes that were measured one by one: the node of each launch. (): it was one machine.
    nodes: tuple[str, ...] = ()
    # By name of each node that was judged to be slower than the others: the date since when.
    slow_nodes: dict[str, str] = {}

    def values(self, metric: str) -> list[float]:
        """Return the figures of `metric`, one for each launch that has it."""
        return [launch[metric] for launch in self.launches if metric in launch]

    def node_names(self) -> tuple[str, ...]:
        """Return the node of each launch: its host, where the session names no node."""
        return self.nodes or (self.environment.host,) * len(self.launches)

    def has_terms(self) -> bool:
        """Return whether any launch has all terms of its step."""
        return any(terms.keys() >= set(TERMS) for terms in self.terms)


def instant(date: str) -> datetime.datetime:
    """Return the time of a date in ISO 8601, which is UTC unless it states otherwise."""
    begun = datetime.datetime.fromisoformat(date)
    return begun if begun.tzinfo else begun.replace(tzinfo=datetime.timezone.utc)


def are_apart(one: str, other: str) -> bool:
    """Return whether two sessions count as two: they began at least half a day apart.

    Sessions of one hour share the state of the machine, and do not show how sessions differ.
    """
    return abs(instant(one) - instant(other)) >= HALF_DAY


# The stored sessions of one metric of a case: which of them set its level, and what they show.


REFERENCE_SESSIONS = 5  # they set the reference level for good: a rolling level would absorb drift
LEAST_SESSIONS = 3  # with fewer, the between-session variance is assumed, not estimated


class MetricHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The stored sessions of one metric of a case, by what they show of it, oldest first."""

    metric: str
    # They inform the spread. Those that were judged slower or faster do not; a suspect session does
    # as soon as a later one shows that it was chance. While a level has fewer sessions than set it,
    # faster ones count, and slower ones in a row inform it too, around a level of their own: there
    # is little else.
    # Sessions of one half-day are one.
    informing: tuple[Session, ...]
    levels: tuple[int, ...]  # of each informing session, the number of its level
    in_force: int  # the number of the level that is in force, and of no later one
    newest_run: tuple[Session, ...]  # the newest ones, if judged REGRESSION or SUSPECT in a row
    of_hosts: bool = False  # of each host of a pool the first session, and no further one

    def seen_from(self, host: str) -> MetricHistory:
        """Return the history by which a session on this host of a pool is judged.

        The host has a level of its own if it has sessions, and if the pool shows how sessions of
        one host differ at least as well as how hosts do. Else hosts are compared.
        """
        own, hosts = self.on_host(host), self.across_hosts()
        repeated = own.degrees_of_freedom >= hosts.degrees_of_freedom
        return own if own.at_level and repeated else hosts

    def on_host(self, host: str) -> MetricHistory:
        """Return the sessions with a level for each host, of which that of ``host`` is in force.

        The sessions of the other hosts inform the spread, each around the level of its host.
        """
        levels = list(zip(self.levels, map(_host, self.informing), strict=True))
        in_force = (self.in_force, host)
        others = sorted(set(levels) - {in_force})
        slower = sum(number < 0 for number, _ in others)
        numbers = {level: i - slower for i, level in enumerate([*others, in_force])}
        return msgspec.structs.replace(
            self,
            levels=tuple(numbers[level] for level in levels),
            in_force=numbers[in_force],
        )

    def across_hosts(self) -> MetricHistory:
        """Return the first session of each host at each level.

        A session on a host that is new to the pool is one of these, so they show how it may differ.
        """
        first: dict[tuple[int, str], Session] = {}
        for number, session in zip(self.levels, self.informing, strict=True):
            first.setdefault((number, _host(session)), session)
        return msgspec.structs.replace(
            self,
            informing=tuple(first.values()),
            levels=tuple(number for number, _ in first),
            of_hosts=True,
        )

    @property
    def degrees_of_freedom(self) -> int:
        """The number of informing sessions beyond the first one of each level."""
        return len(self.informing) - len(set(self.levels))

    @property
    def at_level(self) -> tuple[Session, ...]:
        """The informing sessions of the level that is in force."""
        return tuple(
            session
            for session, number in zip(self.informing, self.levels, strict=True)
            if number == self.in_force
        )

    @property
    def reference(self) -> tuple[Session, ...]:
        """The sessions that set the level: the first `REFERENCE_SESSIONS`.

        A metric that was added later has later reference sessions.
        """
        return self.at_level[:REFERENCE_SESSIONS]

    @property
    def reference_of_terms(self) -> tuple[Session, ...]:
        """The reference sessions of the terms, which a session may lack."""
        with_terms = [session for session in self.at_level if session.has_terms()]
        return tuple(with_terms[:REFERENCE_SESSIONS])

    @property
    def level(self) -> float | None:
        """The median over the reference sessions of each session's median; None without any."""
        return self._level_of(self.reference)

    @property
    def regressed(self) -> tuple[Session, ...]:
        """The newest sessions since a REGRESSION from which no session has recovered."""
        outcomes = [session.verdicts[self.metric] for session in self.newest_run]
        if Outcome.REGRESSION not in outcomes:
            return ()
        return self.newest_run[outcomes.index(Outcome.REGRESSION) :]

    @property
    def newest_slow_down(self) -> float | None:
        """The ratio to the level of the newest three sessions that have regressed."""
        return self._to_level(self.regressed[-3:])

    @property
    def slow_down(self) -> float | None:
        """The ratio to the level of the sessions that have regressed; None if none has.

        It is that of the first three: later ones may have stayed red because they could not decide.
        """
        return self._to_level(self.regressed[:3])

    def _to_level(self, sessions: Sequence[Session]) -> float | None:
        """Return the ratio of sessions to the level: of their host in a pool, if it has one."""
        ratios = [
            statistics.median(session.values(self.metric)) / level
            for session in sessions
            if (level := self._level_on(_host(session)))
        ]
        return statistics.median(ratios) if ratios else None

    def _level_on(self, host: str) -> float | None:
        of_host = [session for session in self.at_level if _host(session) == host]
        return self._level_of(of_host[:REFERENCE_SESSIONS] or self.reference)

    def _level_of(self, sessions: Sequence[Session]) -> float | None:
        medians = [statistics.median(session.values(self.metric)) for session in sessions]
        return statistics.median(medians) if medians else None


def both_sides(metric: str, old: Sequence[Session], new: Sequence[Session]) -> MetricHistory:
    """Return the sessions of a comparison as a history in which the older side sets the level."""
    before, after = ([one for one in side if one.values(metric)] for side in (old, new))
    return MetricHistory(
        metric=metric,
        informing=(*before, *after),
        levels=(1,) * len(before) + (0,) * len(after),
        in_force=1,
        newest_run=(),
    )


def history_of(sessions: Sequence[Session], metric: str, accepted: Sequence[str]) -> MetricHistory:
    """Return the history of a metric from all sessions that have it, oldest first.

    ``accepted`` has the dates of the accepted changes of its level, oldest first, too.
    """
    in_force = len(accepted)
    levels = _by_level(sessions, metric, accepted, faster=False)
    if len(levels.get(in_force, ())) < REFERENCE_SESSIONS:
        levels = _by_level(sessions, metric, accepted, faster=True)
        runs = _regressed_runs(sessions, metric, since=max(accepted, default=""))
        levels |= {-number: by_half_day(run) for number, run in enumerate(runs, start=1)}
    numbered = [(one.date, number, one) for number, found in levels.items() for one in found]
    numbered.sort(key=lambda entry: entry[:2])
    return MetricHistory(
        metric=metric,
        informing=tuple(session for _, _, session in numbered),
        levels=tuple(number for _, number, _ in numbered),
        in_force=in_force,
        newest_run=_newest_run(sessions, metric, since=max(accepted, default="")),
    )


def _host(session: Session) -> str:
    """Return the session's host of a pool, or the same empty name for all that are of no pool."""
    return session.environment.pooled_host or ""


def _by_level(
    sessions: Sequence[Session], metric: str, accepted: Sequence[str], *, faster: bool
) -> dict[int, list[Session]]:
    """Return the half-days of each level, by its number: the accepted changes before them."""
    levels: dict[int, list[Session]] = {}
    for session in _at_a_level(sessions, metric, faster=faster):
        levels.setdefault(bisect.bisect_right(accepted, session.date), []).append(session)
    return {number: by_half_day(found) for number, found in levels.items()}


def _at_a_level(sessions: Sequence[Session], metric: str, *, faster: bool) -> list[Session]:
    """Return the sessions that were not judged slower than their level; faster ones if asked.

    While few sessions set a level, the first of them may have been the odd ones.
    """
    kept: list[Session] = []
    off_level = True  # the sessions seen so far, from the newest one, are off the level
    for session in reversed(sessions):
        outcome = session.verdicts.get(metric)
        off_level = outcome is Outcome.REGRESSION or (outcome is Outcome.SUSPECT and off_level)
        if not off_level and (faster or outcome is not Outcome.IMPROVEMENT):
            kept.append(session)
    return kept[::-1]


def _regressed_runs(
    sessions: Sequence[Session], metric: str, *, since: str
) -> Iterator[list[Session]]:
    """Yield the sessions since a date that were judged REGRESSION in a row."""
    newest = [session for session in sessions if session.date >= since]
    for outcome, run in itertools.groupby(newest, key=lambda session: session.verdicts.get(metric)):
        if outcome is Outcome.REGRESSION:
            yield list(run)


def _newest_run(sessions: Sequence[Session], metric: str, *, since: str) -> tuple[Session, ...]:
    run = itertools.takewhile(
        lambda session: session.date >= since and _is_slower(session.verdicts.get(metric)),
        reversed(sessions),
    )
    return tuple(run)[::-1]


def _is_slower(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.is_slower


def by_half_day(sessions: Sequence[Session]) -> list[Session]:
    """Merge the launches of sessions that are not apart, of each host of a pool by itself."""
    merged: list[Session] = []
    newest: dict[str, int] = {}  # by host
    for session in sessions:
        place = newest.get(_host(session))
        if place is None or are_apart(merged[place].date, session.date):
            newest[_host(session)] = len(merged)
            merged.append(session)
        else:
            last = merged[place]
            merged[place] = msgspec.structs.replace(
                last,
                launches=(*last.launches, *session.launches),
                terms=(*_terms_by_launch(last), *_terms_by_launch(session)),
                nodes=_nodes_of_both(last, session),
                slow_nodes={**session.slow_nodes, **last.slow_nodes},  # the first date is kept
            )
    return merged


def _nodes_of_both(first: Session, second: Session) -> tuple[str, ...]:
    """Return the node of each launch of both, or none if neither names its nodes."""
    if not (first.nodes or second.nodes):
        return ()
    return (*first.node_names(), *second.node_names())


def _terms_by_launch(session: Session) -> tuple[dict[str, float], ...]:
    return session.terms or ({},) * len(session.launches)


# The stored baseline of a case on one accelerator type: its sessions and their figures.


SCHEMA_VERSION = 1


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
