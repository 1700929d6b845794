"""The rules of ``--save-baseline``: which sessions are stored, and how they are merged."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from ddp_perf.baselines.thin import thin
from ddp_perf.core.baseline import Acknowledgement, Baseline, CaseBaseline, Rebaseline
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import Structure
from ddp_perf.core.metric import EXACT, LOSS, METRICS, STEP_TIME, STRUCTURE, is_target
from ddp_perf.core.session import Session, are_apart, instant
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError
from ddp_perf.render.units import field_changes
from ddp_perf.stats.robust import robust_sd

SaveMode = Literal["missing", "append", "accept"]
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


def check_reason(reason: str) -> None:
    """Refuse the … of an advised command, and any text without a word. Raises BaselineError."""
    if not any(character.isalnum() for character in reason):
        raise BaselineError(f"{reason!r} has no word: state why")


def refusal(new: NewSession) -> str | None:
    """Return why the session cannot be a baseline, or None if it can."""
    if len(new.session.launches) < 2:
        return "one launch has no spread; measure at least 2 launches (--ddp-launches)"
    return None


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
    given = [baseline.acknowledgement(case_id, metric) for metric in metrics]
    return [m for m, one in zip(metrics, given, strict=True) if not (one and one.holds(date))]


def stored_session(stored: CaseBaseline, date: str, environment: Environment) -> Session | None:
    """Return the stored session of that date and machine, or None if there is none."""
    for session in stored.sessions:
        if session.date == date and session.environment == environment:
            return session
    return None


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
    return one is not None and one.split(".")[:2] == other.split(".")[:2]


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
    comparable = is_comparable(old, new.case)
    return CaseBaseline(
        work=new.case.work(),
        structure=new.structure or (old.structure if comparable else None),
        flops=new.flops,
        flops_torch=_torch_of(new),
        losses=new.losses or (old.losses if comparable else {}),
        sessions=(*(older if comparable and new.same_machine else ()), new.session),
        first=_first_figures(old, new.session) if comparable else _medians(new.session),
        log=(*old.log, entry),
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
