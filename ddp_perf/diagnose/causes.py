"""From terms that changed to causes: what moved them, and what shows that it did.

A term tells where the time went, and often that is the cause. Where several causes move the
same term, what else was measured tells them apart: the collectives of a step, counted; the same
collectives alone; the control.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ddp_perf.core.explanation import Cause, CauseKind, Explanation, TermChange
from ddp_perf.core.launch import Structure
from ddp_perf.render.units import milliseconds
from ddp_perf.stats.step.attribution import GROUPS, UNEXPLAINED, Attribution

_MACHINE_MOVED = 0.02  # of the control: less is its own noise
_HALF = 0.5  # of a term's change: a cause that makes up as much takes it


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured beside the terms, now and in the baseline."""

    structure_before: Structure | None  # None: not known
    structure_after: Structure
    structure_changes: tuple[str, ...]  # the same in words
    communication: TermChange | None  # all collectives of a step, alone
    lag: TermChange | None  # of whichever rank is slowest, behind a typical one's; by launch
    host_reads: TermChange | None  # a count, not seconds
    allocator_retries: TermChange | None  # a count
    control: TermChange | None
    on_gpu: bool
    sees_communication: bool  # False: it is part of forward and backward
    slowest_rank: int  # over all launches
    slowest_lag_s: float  # of that rank
    lagging: tuple[int, ...]  # that rank, and others that lag as well
    slowest_share: float  # of the steps: how often it comes last
    slowest_where: str  # its device and host
    changed: tuple[str, ...]  # of the environment
    disturbance: str | None  # what others took from most launches


def grown_by_count(before: Structure | None, after: Structure) -> tuple[str, ...]:
    """Groups of terms that the collectives of a step show to have grown: it has more of them."""
    return ("unhidden",) if before is not None and _exchanges_more(before, after) else ()


def find_causes(
    case_id: str, attribution: Attribution, evidence: Evidence, launches: int
) -> Explanation:
    """The causes of a case's change, the largest first. Where these launches were not slower,
    there is none but what was counted.
    """
    step = attribution.step
    causes = _merged(_causes_of(attribution, evidence))
    if step.change_s > 0:
        left = step.change_s - sum(cause.change_s for cause in causes)
        if left > _HALF * step.change_s and all(cause.kind != "unexplained" for cause in causes):
            causes.append(_too_uncertain(left))
    return Explanation(
        case_id=case_id,
        step_change_s=step.change_s,
        causes=tuple(
            Cause(
                kind=found.kind,
                change_s=found.change_s,
                share=found.change_s / step.change_s if step.change_s > 0 else 0.0,
                evidence=(*_terms_of(found, attribution), *found.evidence),
                rank=found.rank,
                likely=found.likely,
            )
            for found in sorted(causes, key=lambda found: found.change_s, reverse=True)
        ),
        terms=attribution.terms,
        launches=launches,
    )


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    kind: CauseKind
    change_s: float
    evidence: tuple[str, ...] = ()
    rank: int | None = None
    groups: tuple[str, ...] = ()  # whose terms are part of the evidence
    likely: bool = False


def _causes_of(attribution: Attribution, evidence: Evidence) -> list[_Found]:
    """Of each group that grew, in a step that did: that it did is the gate's verdict, by more
    sessions than these. A group that shrank made nothing slower.
    """
    is_slower = attribution.step.change_s > 0
    grown = [group for group in attribution.groups if is_slower and group.change_s > 0]
    causes = [
        _with_size(cause, group) for group in grown for cause in _RULES[group.name](group, evidence)
    ]
    if likely := attribution.likely:
        causes += [
            msgspec.structs.replace(
                cause,
                likely=True,
                evidence=(*cause.evidence, f"by chance up to ± {_ms(likely.uncertainty_s)}"),
            )
            for cause in _RULES[likely.name](likely, evidence)
        ]
    told = {line for cause in causes for line in cause.evidence}
    if not told.issuperset(evidence.structure_changes):
        causes.append(_other_work(0.0, evidence))  # no term shows what it takes: it is hidden
    return causes


def _with_size(cause: _Found, group: TermChange) -> _Found:
    """What a count or the lag shows to be there may still be of an uncertain size."""
    if group.is_certain:
        return cause
    known = f"its size is known to ± {_ms(group.uncertainty_s)} only"
    return msgspec.structs.replace(cause, evidence=(*cause.evidence, known))


def _merged(causes: Iterable[_Found]) -> list[_Found]:
    """One of each kind: a cause may move several groups of terms."""
    merged: dict[tuple[CauseKind, int | None, bool], _Found] = {}
    for cause in causes:
        key = cause.kind, cause.rank, cause.likely
        first = merged.setdefault(key, cause)
        if first is not cause:
            merged[key] = msgspec.structs.replace(
                first,
                change_s=first.change_s + cause.change_s,
                evidence=tuple(dict.fromkeys((*first.evidence, *cause.evidence))),
                groups=(*first.groups, *cause.groups),
            )
    return list(merged.values())


def _compute(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    """The control is computation too: as far as it slowed down, the machine did."""
    control, by_machine = evidence.control, 0.0
    if control is not None and control.is_certain and control.change_s > 0:
        ratio = control.after_s / control.before_s - 1
        share = change.before_s * ratio / change.change_s
        if ratio > _MACHINE_MOVED and share >= 1 - _HALF:
            by_machine = change.change_s * min(share, 1.0)
            what = f"the control, the same matrix product every session, moved {ratio:+.1%}"
            yield _Found(kind="machine", change_s=by_machine, evidence=(what, *evidence.changed))
    left = change.change_s - by_machine
    if not by_machine or left > change.uncertainty_s:
        yield _of_computation(left, change, evidence)


def _of_computation(change_s: float, change: TermChange, evidence: Evidence) -> _Found:
    """On a GPU what the host waits for is in these phases too, and of FSDP all communication."""
    kind: CauseKind = "compute"
    told = evidence.changed
    retries = evidence.allocator_retries
    if retries is not None and retries.is_certain and retries.change_s > 0:
        kind = "memory"
        told = ("the GPU's memory was full, and its cache was given back, in the steps looked at",)
    elif evidence.on_gpu and _more_reads(evidence):
        kind, told = "host sync", (_reads(evidence), *evidence.structure_changes)
    elif not evidence.sees_communication and _alone_s(evidence) >= _HALF * change_s:
        if _does_more(evidence):
            return _other_work(change_s, evidence, groups=(change.name,))
        kind, told = "communication", (*_alone(evidence), *evidence.changed)
    return _Found(kind=kind, change_s=change_s, evidence=told, groups=(change.name,))


def _communication(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    """Other collectives; the same ones, slower; or the same, as fast, and less of it hidden."""
    alone = evidence.communication
    if _more_reads(evidence):
        yield _of_terms("host sync", change, (_reads(evidence), *evidence.structure_changes))
    elif _does_more(evidence):
        left = change.change_s - _alone_s(evidence) if _alone_s(evidence) > 0 else 0.0
        if not change.is_certain or left < _HALF * change.change_s:
            left = 0.0  # it is one cause's
        yield _other_work(change.change_s - left, evidence, groups=(change.name,))
        if left:
            overlap = _lost_overlap(change, evidence)
            yield msgspec.structs.replace(overlap, change_s=left)
    elif alone is None or alone.change_s >= _HALF * change.change_s:
        told = (*evidence.structure_changes, *_alone(evidence), *evidence.changed)
        yield _of_terms("communication", change, told)
    else:
        yield _lost_overlap(change, evidence)


def _lost_overlap(change: TermChange, evidence: Evidence) -> _Found:
    less = "less of it goes on beside the backward"
    told = (less, *evidence.structure_changes, *_alone(evidence))
    return _of_terms("lost overlap", change, told)


def _of_terms(kind: CauseKind, change: TermChange, told: tuple[str, ...]) -> _Found:
    """The change of a group, with its terms as evidence."""
    return _Found(kind=kind, change_s=change.change_s, evidence=told, groups=(change.name,))


def _does_more(evidence: Evidence) -> bool:
    before = evidence.structure_before
    return before is not None and _exchanges_more(before, evidence.structure_after)


def _exchanges_more(before: Structure, after: Structure) -> bool:
    """More calls, or more bytes; a bucket instead of two is neither."""
    more_calls = len(after.collectives) > len(before.collectives)
    return more_calls or _bytes(after) > _bytes(before)


def _other_work(change_s: float, evidence: Evidence, groups: tuple[str, ...] = ()) -> _Found:
    before, after = evidence.structure_before, evidence.structure_after
    kind: CauseKind = "other collectives"
    if before is not None and before.collectives == after.collectives:
        kind = "compute"  # of another model
    elif before is not None and _exchanges_more(before, after):
        kind = "more communication" if _bytes(after) > _bytes(before) else "smaller buckets"
    told = (*evidence.structure_changes, *_alone(evidence), *evidence.changed)
    if _more_reads(evidence):
        kind, told = "host sync", (_reads(evidence), *told)
    return _Found(kind=kind, change_s=change_s, evidence=told, groups=groups)


def _bytes(structure: Structure) -> int:
    return sum(collective.bytes for collective in structure.collectives)


def _imbalance(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    """One rank that lags behind, in one launch as in the next; or ranks that are late in turn,
    and by their mean work alike. A baseline that knows no lag is taken to have had none.
    """
    lag, now_s = evidence.lag, evidence.slowest_lag_s
    more_s = now_s if lag is None else min(lag.change_s, now_s)
    if more_s < _HALF * change.change_s:
        yield from _of_host(
            change, evidence, "ranks come late in turn; the mean work of none grew by as much"
        )
        return
    rank, before = evidence.slowest_rank, ""
    if lag is not None:
        before = f" (the slowest one before: {_ms(lag.before_s)})"
    what = (
        f"rank {rank} ({evidence.slowest_where}) works {_ms(now_s)} longer than"
        f" a typical rank{before}, and comes last in {evidence.slowest_share:.0%} of the steps"
    )
    others = ", ".join(str(one) for one in evidence.lagging if one != rank)
    told = (what, f"also behind, half as far at least: {others}") if others else (what,)
    yield _Found(kind="straggler", change_s=change.change_s, evidence=told, rank=rank)


def _data(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    what = f"a step waits {_ms(change.after_s)} for its batch; {_ms(change.before_s)} before"
    yield _Found(kind="data", change_s=change.change_s, evidence=(what,))


def _idle(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    if _more_reads(evidence):
        yield _Found(kind="host sync", change_s=change.change_s, evidence=(_reads(evidence),))
        return
    yield from _of_host(
        change, evidence, "the ranks had no core, or slept, while they were to compute"
    )


def _of_host(change: TermChange, evidence: Evidence, what: str) -> Iterator[_Found]:
    kind: CauseKind = "machine" if evidence.disturbance else "host"
    told = (what, evidence.disturbance) if evidence.disturbance else (what,)
    yield _Found(kind=kind, change_s=change.change_s, evidence=told)


def _unexplained(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    what = "of it the steps looked at after the timed ones show nothing"
    told = (what, evidence.disturbance) if evidence.disturbance else (what,)
    yield _Found(kind="unexplained", change_s=change.change_s, evidence=told)


def _too_uncertain(change_s: float) -> _Found:
    what = "no term grew by as much, beyond what chance does to it"
    return _Found(kind="unexplained", change_s=change_s, evidence=(what,))


_RULES = {
    "compute": _compute,
    "unhidden": _communication,
    "imbalance": _imbalance,
    "data": _data,
    "idle": _idle,
    UNEXPLAINED: _unexplained,
}


def _terms_of(found: _Found, attribution: Attribution) -> tuple[str, ...]:
    """Where in the step it is, the largest change first."""
    members = {term for group in found.groups for term in GROUPS[group]}
    terms = [term for term in attribution.terms if term.name in members]
    terms.sort(key=lambda term: abs(term.change_s), reverse=True)
    shown = [f"{term.name} {_ms(term.before_s)} → {_ms(term.after_s)}" for term in terms[:2]]
    return (", ".join(shown),) if shown else ()


def _alone(evidence: Evidence) -> tuple[str, ...]:
    change = evidence.communication
    if change is None:
        return ("how long all collectives of a step take alone is not known",)
    return (f"all collectives of a step alone: {_ms(change.before_s)} → {_ms(change.after_s)}",)


def _alone_s(evidence: Evidence) -> float:
    """How much longer all collectives take alone; 0 where that is not certain."""
    change = evidence.communication
    return change.change_s if change is not None and change.is_certain else 0.0


def _reads(evidence: Evidence) -> str:
    more = _more_reads(evidence)
    return f"the host waits for {more:g} more value{'s' if more > 1 else ''} a step (.item())"


def _more_reads(evidence: Evidence) -> float:
    return max(0.0, evidence.host_reads.change_s) if evidence.host_reads is not None else 0.0


def _ms(seconds: float) -> str:
    return f"{milliseconds(seconds)} ms"
