"""The rules of ``--save-baseline``: which sessions are stored, merged, and kept."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from ddp_perf.baselines.work import StoredWork, WorkBaseline, of_same_options, torch_minor
from ddp_perf.core.baseline import (
    REFERENCE_SESSIONS,
    TYPICAL_STEP,
    Acknowledgement,
    Baseline,
    CaseBaseline,
    MetricHistory,
    Rebaseline,
    Session,
    are_apart,
    by_half_day,
    instant,
)
from ddp_perf.core.case import RANKS, Case, Scalar, work_without
from ddp_perf.core.launch import Structure
from ddp_perf.core.metric import EXACT, LOSS, METRICS, STEP_TIME, STRUCTURE, is_target
from ddp_perf.core.subject import MODELS
from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import StepWork
from ddp_perf.errors import BaselineError
from ddp_perf.render.units import field_changes
from ddp_perf.stats.robust import robust_sd

# The sessions of a case that stay, and those that are dropped so that it does not grow for years.
#
# The history and version control have the sessions that are dropped.


INFORMING = 28  # newest sessions that inform the level and the spread of a metric
NEWEST = 10  # newest sessions of any verdict


def thin(case: CaseBaseline) -> CaseBaseline:
    """Return the case with the sessions, and the terms of them, that are still read."""
    histories = [case.history(metric.name) for metric in METRICS]
    step_time = case.history(STEP_TIME.name)
    of_terms = step_time.reference_of_terms
    read = (session for history in histories for session in _read(case, history))
    marked = _newest_of_slow_nodes(case)
    kept, with_terms = _launches((*read, *of_terms, *marked)), _launches(of_terms)
    sessions = list(_with_witnesses(case, kept))
    if len(of_terms) == len(_not_faster(step_time)) == REFERENCE_SESSIONS:
        sessions = [
            one if _launches([one]) <= with_terms else without_figures(one, {TYPICAL_STEP})
            for one in sessions
        ]
    return msgspec.structs.replace(case, sessions=tuple(sessions))


def without_figures(session: Session, names: Collection[str]) -> Session:
    """Return the session without these figures.

    Without the typical step there are no terms either, which it is compared with.
    """
    launches = tuple(
        {name: value for name, value in launch.items() if name not in names}
        for launch in session.launches
    )
    terms = () if TYPICAL_STEP in names else session.terms
    return msgspec.structs.replace(session, launches=launches, terms=terms)


def _launches(sessions: Iterable[Session]) -> set[int]:
    """Return the identities of the launches: sessions of a half-day are merged into one by them."""
    return {id(launch) for session in sessions for launch in session.launches}


def _with_witnesses(case: CaseBaseline, kept: set[int]) -> Iterator[Session]:
    """Yield what is kept; after a suspect session also the next one that is not suspect.

    That one shows whether the suspect session informs, or was the begin of a regression.
    """
    awaited: set[str] = set()  # metrics
    for session in case.sessions:
        suspect = {name for name, found in session.verdicts.items() if found is Outcome.SUSPECT}
        shown = {name for name in awaited - suspect if session.values(name)}
        if shown or _launches([session]) <= kept:
            awaited = (awaited - shown) | suspect
            yield session


def _not_faster(history: MetricHistory) -> tuple[Session, ...]:
    """Return the sessions that set the level as soon as they are enough without faster ones."""
    not_faster = (
        session
        for session in history.at_level
        if session.verdicts.get(history.metric) is not Outcome.IMPROVEMENT
    )
    return tuple(itertools.islice(not_faster, REFERENCE_SESSIONS))


def _newest_of_slow_nodes(case: CaseBaseline) -> Iterator[Session]:
    """Yield the newest session of each node that was slow in it: one for each slow node at most.

    A large fleet may visit a node again after more sessions than are kept.
    """
    seen: set[str] = set()
    for session in reversed(by_half_day(case.sessions_with(STEP_TIME.name))):
        if (set(session.nodes) - seen) & session.slow_nodes.keys():
            yield session
        seen |= set(session.nodes)


def _read(case: CaseBaseline, history: MetricHistory) -> Iterator[Session]:
    """Yield the sessions that are read to judge the metric, some of them more than once."""
    sessions = case.sessions_with(history.metric)
    yield from history.reference
    yield from _not_faster(history)
    yield from history.informing[-INFORMING:]
    yield from _read_of_pool(history)
    yield from sessions[-NEWEST:]
    # Of the newest sessions in a row that are slower: the first three REGRESSION, those that are
    # suspect, and the session before them, without which they would seem to begin earlier.
    run = history.newest_run
    if run:
        by_outcome = [(session.verdicts[history.metric], session) for session in run]
        yield from [session for outcome, session in by_outcome if outcome is Outcome.REGRESSION][:3]
        yield from [session for outcome, session in by_outcome if outcome is Outcome.SUSPECT]
        yield from sessions[: len(sessions) - len(run)][-1:]


def _read_of_pool(history: MetricHistory) -> Iterator[Session]:
    """Yield what sets the level of each host that still measures, and the first of each host."""
    newest = (session.environment.pooled_host for session in history.informing[-INFORMING:])
    measuring = [host for host in dict.fromkeys(newest) if host is not None]
    if not measuring:
        return
    for host in measuring:
        yield from history.on_host(host).reference
    hosts = history.across_hosts()
    yield from hosts.reference
    yield from hosts.informing[-INFORMING:]


# The rules of ``--save-baseline``: which sessions are stored, and how they are merged.


SaveMode = Literal["missing", "append", "accept"]


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """The mode of --save-baseline, its reason, and what the code has beyond its commit."""

    mode: SaveMode
    reason: str | None = None
    patch: bytes = b""  # it is kept with the session, so that its code can run again


FLOPS = "flops"  # of a step: stored beside the metrics, and judged with the structure
SAVE_MODES: tuple[SaveMode, ...] = get_args(SaveMode)


def without_saving(words: Sequence[str], modes: Collection[str] = SAVE_MODES) -> list[str]:
    """Return a command's words without --save-baseline in these modes."""
    kept = []
    left = iter(zip(words, [*words[1:], ""], strict=False))  # no word has one after it
    for word, following in left:
        name, _, mode = word.partition("=")
        is_next = word == "--save-baseline" and following in SAVE_MODES
        if name != "--save-baseline" or (following if is_next else mode or "missing") not in modes:
            kept.append(word)
        elif is_next:
            next(left)
    return kept


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a case that was stored: where, and how."""

    path: str  # of the baseline file
    mode: SaveMode
    without: dict[str, str] = {}  # by metric that was left out: why
    beside: str | None = None  # date of the stored session with which it counts as one


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a case that was not stored, though storing was requested."""

    reason: str  # without a full stop; most reasons end with a remedy
    # The machine was not quiet, nobody announced the first session, or the counts of the step are
    # others than the stored ones; None: another reason.
    cause: Literal["machine", "unannounced", "other work"] | None = None

    @property
    def is_open(self) -> bool:
        """True if it leaves open whether training got worse."""
        return self.cause in ("machine", "unannounced")


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """One case of this session, ready to be stored."""

    case: Case
    session: Session
    structure: Structure | None  # None: the case does not train, or no launch counted it
    flops: int | None = None
    losses: dict[str, float] = {}  # {}: not judged, not finite, or not repeatable
    # By metric, the dates of stored sessions that turned out to be slower than the level.
    off_level: dict[str, tuple[str, ...]] = {}
    same_machine: bool = True  # as every stored session: they still inform the spread


def check_reason(option: str, reason: str) -> None:
    """Refuse the … of an advised command, and any text without a word. Raises BaselineError."""
    if not any(character.isalnum() for character in reason):
        raise BaselineError(f"{option}: {reason!r} has no word: state why")


def too_noisy(new: NewSession) -> str | None:
    """Return how far the launches differ in their steps, if too far for a level; else None."""
    steps = new.session.values(STEP_TIME.name)
    if len(steps) < 2:
        return None
    # If the error of the level exceeds the tolerance, the level cannot gate anything. One
    # outlier does no harm: the judge separates such launches from the others.
    spread = robust_sd(steps) / statistics.median(steps)
    error = spread / math.sqrt(len(steps))
    tolerance = new.case.tolerances.step_time
    if error > tolerance:
        return (
            f"too noisy: launches differ by {spread:.1%}, so the error of the level is"
            f" ± {error:.1%}, and the tolerance is {tolerance:.1%}; measure on a quieter"
            " machine, or measure more launches"
        )
    return None


def merge(
    baseline: Baseline, sessions: Sequence[NewSession], *, mode: SaveMode, reason: str | None
) -> Baseline:
    """Return the baseline with the sessions merged into it by the rules of ``mode``.

    ``append`` drops the sessions that are read no more, and so does ``missing``, which appends to a
    case that has no level of some metric. ``accept`` begins a new level. It logs the change with
    its reason, and removes the acknowledgements of the case.
    """
    cases = dict(baseline.cases)
    for new in sessions:
        old = cases.get(new.case.id)
        if old is None:
            cases[new.case.id] = _first(new)
        elif mode == "accept":
            cases[new.case.id] = _accepted(old, new, reason or "")
        elif (mode == "append" or new_metrics(old, new)) and is_comparable(old, new.case):
            cases[new.case.id] = thin(_appended(old, new))
    accepted = {new.case.id for new in sessions} if mode == "accept" else set()
    return msgspec.structs.replace(
        baseline,
        cases=cases,
        acknowledged=tuple(a for a in baseline.acknowledged if a.case not in accepted),
    )


def new_metrics(stored: CaseBaseline, new: NewSession) -> set[str]:
    """Return what the session has and is not stored: metrics without a level, losses, and FLOPs.

    FLOPs that another torch counted are not compared, so they count as not stored.
    """
    metrics = {
        metric.name
        for metric in METRICS
        if new.session.values(metric.name) and not stored.sessions_with(metric.name)
    }
    if new.losses and not stored.losses:
        metrics.add(LOSS)
    if not _counts_alike(stored, new):
        metrics.add(FLOPS)
    return metrics


def _with_verdicts(
    sessions: Sequence[Session], off_level: Mapping[str, Sequence[str]]
) -> Iterator[Session]:
    """Yield the sessions, as REGRESSION those of the half-days that begin on these dates.

    A half-day of a pool's host begins with a session of that host.
    """
    hosts = {session.date: session.environment.pooled_host for session in sessions}
    for session in sessions:
        slower = {
            metric: Outcome.REGRESSION
            for metric, dates in off_level.items()
            if metric not in session.verdicts
            and any(
                date <= session.date
                and not are_apart(date, session.date)
                and hosts.get(date) == session.environment.pooled_host
                for date in dates
            )
        }
        verdicts = {**slower, **session.verdicts}
        yield msgspec.structs.replace(session, verdicts=verdicts) if slower else session


def acknowledge(baseline: Baseline, new: Acknowledgement) -> Baseline:
    """Replace the acknowledgement of the same case and metric by ``new``.

    It covers what it states, or else the slow-down that is stored now, and none that is clearly
    larger. Raises BaselineError if there is neither, unless it is of a target or in the past.
    """
    stored = baseline.cases.get(new.case)
    if stored is not None and not new.has_size:
        ratio = stored.history(new.metric).newest_slow_down
        new = msgspec.structs.replace(new, ratio=ratio)
    if not (new.has_size or is_target(new.metric) or not new.holds(new.date)):
        raise BaselineError(
            f"no stored session of {new.case} is slower in {new.metric}, so state what is covered:"
            " --results FILE names the session that shows it"
            + ("" if new.metric in EXACT else ", --at-most 1.2 covers 20 %")
        )
    others = [a for a in baseline.acknowledged if (a.case, a.metric) != (new.case, new.metric)]
    acknowledged = sorted([*others, new], key=lambda a: (a.case, a.metric))
    return msgspec.structs.replace(baseline, acknowledged=tuple(acknowledged))


def unacknowledged(baseline: Baseline, case_id: str, date: str) -> list[str]:
    """Return the stored metrics of a case without an acknowledgement for that day."""
    stored = baseline.cases[case_id]
    metrics = [m.name for m in METRICS if any(s.values(m.name) for s in stored.sessions)]
    if stored.structure is not None:
        metrics.append(STRUCTURE)
    if stored.losses:
        metrics.append(LOSS)
    given = {metric: baseline.acknowledgement(case_id, metric) for metric in metrics}
    return [metric for metric, one in given.items() if not (one and one.holds(date))]


def is_comparable(stored: CaseBaseline, case: Case) -> bool:
    """Return whether the stored figures are of the same work."""
    return not work_differences(stored, case)


def work_differences(stored: CaseBaseline, case: Case) -> list[str]:
    """Return each field of the work that differs, as ``model.hidden_dim 4096 → 2048``."""
    return field_changes(stored.work, case.work())


def _first(new: NewSession) -> CaseBaseline:
    return CaseBaseline(
        work=new.case.work(),
        structure=new.structure,
        flops=new.flops,
        flops_torch=_torch_of(new),
        losses=new.losses,
        sessions=(new.session,),
        first=_medians(new.session),
    )


def _torch_of(new: NewSession) -> str | None:
    return None if new.flops is None else new.session.environment.torch


def _with_counts(old: CaseBaseline, new: NewSession) -> CaseBaseline:
    """Return the case with the losses, if it has none, and FLOPs that this torch counts alike.

    Stored losses stay: those of every session are compared with them until a change is accepted.
    """
    old = msgspec.structs.replace(old, losses=old.losses or new.losses)
    if _counts_alike(old, new):
        return old
    return msgspec.structs.replace(old, flops=new.flops, flops_torch=_torch_of(new))


def _counts_alike(old: CaseBaseline, new: NewSession) -> bool:
    torch = _torch_of(new)
    return torch is None or is_counted_alike(old.flops_torch, torch)


def is_counted_alike(one: str | None, other: str) -> bool:
    """Return whether two versions of torch count FLOPs alike: the same minor version does."""
    return one is not None and torch_minor(one) == torch_minor(other)


def _appended(old: CaseBaseline, new: NewSession) -> CaseBaseline:
    """Add the session in the order of the dates."""
    session, old = new.session, _with_counts(old, new)
    if not any(session.launches):
        return old  # ``missing`` adds losses and FLOPs alone
    # ``missing`` may add an older one that has what the newer ones lack.
    sessions = sorted(
        [*_with_verdicts(old.sessions, new.off_level), session], key=lambda one: instant(one.date)
    )
    first = _first_figures(old, session)
    return msgspec.structs.replace(old, sessions=tuple(sessions), first=first)


def _accepted(old: CaseBaseline, new: NewSession, reason: str) -> CaseBaseline:
    """Begin a new level with the session; the older ones inform the spread if they still can.

    The session itself may be stored already, by ``append``.
    """
    older = [session for session in old.sessions if session.date < new.session.date]
    before = old.level(STEP_TIME.name) or old.first.get(STEP_TIME.name)
    entry = Rebaseline(
        date=new.session.date,
        commit=new.session.environment.commit,
        reason=reason,
        ratio=_medians(new.session)[STEP_TIME.name] / before if before else None,
    )
    begun = msgspec.structs.replace(_first(new), log=(*old.log, entry))
    if not is_comparable(old, new.case):
        return begun
    return msgspec.structs.replace(
        begun,
        structure=new.structure or old.structure,
        losses=new.losses or old.losses,
        sessions=(*(older if new.same_machine else ()), new.session),
        first=_first_figures(old, new.session),
    )


def _first_figures(old: CaseBaseline, session: Session) -> dict[str, float]:
    """Return the first figures with those that only this session has, or has earlier than all."""
    first = dict(old.first)
    for name, median in _medians(session).items():
        dates = [one.date for one in old.sessions if one.values(name)]
        is_first = session.date < min(dates) if dates else name not in first
        if is_first:
            first[name] = median
    return first


def _medians(session: Session) -> dict[str, float]:
    names = session.launches[0].keys()
    return {name: statistics.median(session.values(name)) for name in names}


# The structures of a suite: which one its file states for a case, and which ones are stored.


_DATA = frozenset({"batch_size", "global_batch", "data"})


def known_structure(case: Case, shared: Mapping[str, StoredWork]) -> Structure | None:
    """Return the structure that the suite's file states for a case, or None.

    The entry of the same work decides; else one of the work that determines the structure, the same
    batch first, then the smallest number of ranks.
    """
    if (same := of_same_options(case, shared)) is not None:
        return same.step.structure
    determining, batch = determining_work(case.work()), work_without(case.work(), RANKS)
    alike = [one for one in shared.values() if determining_work(one.options) == determining]
    nearest = min(
        alike,
        key=lambda one: (work_without(one.options, RANKS) != batch, one.options["world_size"]),
        default=None,
    )
    return nearest.step.structure if nearest is not None else None


def determining_work(work: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the part of a fingerprint that determines the structure.

    Batch and data are no part of it: the included workloads send none of it. A user's may, as a
    contrastive loss does, which gathers samples. Ranks reduce whole buckets, whatever their number
    from two on; but FSDP shards over them, and Top-K gathers from each; a script may do either.
    Nodes count where a strategy follows them. An emulated rank sends what real ones send.
    """
    irrelevant = {"network", *(_DATA if work.get("workload") in MODELS else ())}
    follows_nodes = work.get("comm_hook.group_size") == "node" or "fsdp.replicate" in work
    if not follows_nodes:
        irrelevant.add("nodes")
    may_share = work.get("strategy") == "fsdp" or "script" in work
    shares = may_share or "comm_hook.ratio" in work or follows_nodes
    if not shares and work["world_size"] != 1:
        irrelevant.add("world_size")
    return work_without(work, irrelevant)


def other_sizes(case: Case, shared: Mapping[str, StoredWork]) -> list[int]:
    """Return the other numbers of ranks of which the structure of the same work is stored."""
    work = work_without(determining_work(case.work()), RANKS)
    stored_works = [stored.options for stored in shared.values()]
    alike = [one for one in stored_works if work_without(determining_work(one), RANKS) == work]
    return sorted({int(one["world_size"]) for one in alike} - {case.world_size})


def own_structure(case: Case, stored: CaseBaseline | None) -> Structure | None:
    """Return the structure of this machine's stored sessions, if they are of the same work."""
    return stored.structure if stored is not None and is_comparable(stored, case) else None


def merge_structures(
    stored: WorkBaseline, sessions: Sequence[NewSession], baseline: Baseline, *, mode: SaveMode
) -> WorkBaseline:
    """Return the structures of the suite's file, with those of the sessions that ``mode`` stores.

    ``missing`` and ``append`` store what the file does not state yet, and ``accept`` what differs.
    ``baseline`` is this machine's, before the session.
    """
    merged = dict(stored.cases)
    for new in sorted(sessions, key=lambda new: new.case.world_size):
        case, structure = new.case, new.structure
        if structure is None or known_structure(case, merged) == structure:
            continue
        if mode == "accept" or _is_missing(case, structure, stored.cases, baseline):
            merged[case.id] = StoredWork(options=case.work(), step=StepWork(structure=structure))
    return msgspec.structs.replace(stored, cases=merged)


def _is_missing(
    case: Case, structure: Structure, shared: Mapping[str, StoredWork], baseline: Baseline
) -> bool:
    """Return whether the file states nothing, and this machine's sessions nothing else."""
    if case.id in shared or known_structure(case, shared) is not None:
        return False
    return own_structure(case, baseline.cases.get(case.id)) in (None, structure)
