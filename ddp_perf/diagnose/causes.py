"""From terms that changed to causes: what moved them, and what shows that it did.

A term tells where the time went, and often that is the cause. Where several causes move the
same term, what else was measured tells them apart: the collectives of a step, counted; the same
collectives alone; the control.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ddp_perf.core.explanation import Cause, CauseKind, Explanation, TermChange
from ddp_perf.core.result import Collective
from ddp_perf.stats.attribution import GROUPS, UNEXPLAINED, Attribution

_MACHINE_MOVED = 0.02  # of the control: less is its own noise
_OF_STRUCTURE: frozenset[CauseKind] = frozenset(
    {"more communication", "smaller buckets", "host sync"}
)
_STANDS_OUT = 0.15  # of the steps: how much more often than by chance a straggler comes last
_HALF = 0.5  # of a term's change: a cause that makes up as much takes it


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured beside the terms, now and in the baseline."""

    collectives_before: tuple[Collective, ...] | None  # of a step; None: not known
    collectives_after: tuple[Collective, ...]
    structure_changes: tuple[str, ...]  # the same in words
    communication: TermChange | None  # all collectives of a step, alone
    host_reads: TermChange | None  # a count, not seconds
    allocator_retries: TermChange | None  # a count
    control: TermChange | None
    ranks: int
    slowest_rank: int
    slowest_share: float  # of the steps
    slowest_where: str  # its device and host
    changed: tuple[str, ...]  # of the environment
    disturbance: str | None  # what others took from the launches


def explain(
    case_id: str, attribution: Attribution, evidence: Evidence, launches: int
) -> Explanation:
    """The causes of a case's change, the largest first."""
    causes = [
        cause for group in attribution.groups for cause in _RULES[group.name](group, evidence)
    ]
    told = {cause.kind for cause in causes}
    if evidence.structure_changes and not told & _OF_STRUCTURE:
        causes += _other_work(evidence)
    step = attribution.step.change_s
    return Explanation(
        case_id=case_id,
        step_change_s=step,
        causes=tuple(
            Cause(
                kind=found.kind,
                change_s=found.change_s,
                share=found.change_s / step if step else 0.0,
                evidence=(*_terms_of(found, attribution), *found.evidence),
                rank=found.rank,
            )
            for found in sorted(causes, key=lambda found: abs(found.change_s), reverse=True)
        ),
        terms=attribution.terms,
        launches=launches,
    )


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    kind: CauseKind
    change_s: float
    evidence: tuple[str, ...] = ()
    rank: int | None = None
    group: str | None = None  # whose terms are part of the evidence


def _compute(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    """The control is computation too: as far as it slowed down, the machine did."""
    control, by_machine = evidence.control, 0.0
    if control is not None and control.is_certain and change.change_s * control.change_s > 0:
        ratio = control.after_s / control.before_s - 1
        share = change.before_s * ratio / change.change_s
        if abs(ratio) > _MACHINE_MOVED and share >= 1 - _HALF:
            by_machine = change.change_s * min(share, 1.0)
            what = f"the control, the same matrix product every night, moved {ratio:+.1%}"
            yield _Found(kind="machine", change_s=by_machine, evidence=(what, *evidence.changed))
    left = change.change_s - by_machine
    if change.is_beyond_error(left):
        retries = _increase(evidence.allocator_retries)
        if retries:
            what = (
                f"the GPU's memory was full {retries} more times: blocks were freed and taken anew"
            )
            yield _Found(kind="memory", change_s=left, evidence=(what,), group=change.name)
        else:
            yield _Found(
                kind="compute", change_s=left, evidence=evidence.changed, group=change.name
            )


def _communication(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    """Other collectives; the same ones, slower; or the same, as fast, and less of it hidden."""
    alone = evidence.communication
    alone_s = alone.change_s if alone is not None and alone.is_certain else 0.0
    if reads := _increase(evidence.host_reads):
        what = f"the host waits for {reads} more value{'s' if reads > 1 else ''} a step (.item())"
        told = (what, *evidence.structure_changes)
        yield _Found(kind="host sync", change_s=change.change_s, evidence=told, group=change.name)
    elif evidence.structure_changes:
        left = change.change_s - alone_s if alone_s > 0 else 0.0
        left = left if left >= _HALF * change.change_s else 0.0  # else it is one cause's
        yield from _other_work(evidence, change.change_s - left)
        if left:
            yield _lost_overlap(left, change, evidence)
    elif alone_s / change.change_s >= _HALF:
        told = (*_alone(evidence), *evidence.changed)
        yield _Found(
            kind="communication", change_s=change.change_s, evidence=told, group=change.name
        )
    else:
        yield _lost_overlap(change.change_s, change, evidence)


def _lost_overlap(change_s: float, change: TermChange, evidence: Evidence) -> _Found:
    told = ("less of it goes on beside the backward", *_alone(evidence))
    return _Found(kind="lost overlap", change_s=change_s, evidence=told, group=change.name)


def _other_work(evidence: Evidence, change_s: float | None = None) -> Iterator[_Found]:
    """By default as long as the collectives alone take more: nothing else shows it."""
    before, after = evidence.collectives_before or (), evidence.collectives_after
    same_bytes = sum(c.bytes for c in before) == sum(c.bytes for c in after)
    kind: CauseKind = "more communication"
    if same_bytes and len(after) > len(before):
        kind = "smaller buckets"
    if change_s is None:
        change_s = evidence.communication.change_s if evidence.communication else 0.0
    yield _Found(
        kind=kind, change_s=change_s, evidence=(*evidence.structure_changes, *_alone(evidence))
    )


def _imbalance(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    rank, share = evidence.slowest_rank, evidence.slowest_share
    if share < 1 / evidence.ranks + _STANDS_OUT:
        what = f"ranks came late in turn, none in more than {share:.0%} of the steps"
        yield from _of_host(change, evidence, what)
        return
    what = f"rank {rank} ({evidence.slowest_where}) came last in {share:.0%} of the steps"
    yield _Found(kind="straggler", change_s=change.change_s, evidence=(what,), rank=rank)


def _data(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    what = f"a step waits {_ms(change.after_s)} for its batch; {_ms(change.before_s)} before"
    yield _Found(kind="data", change_s=change.change_s, evidence=(what,))


def _idle(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    yield from _of_host(
        change, evidence, "the ranks had no core, or slept, while they were to compute"
    )


def _of_host(change: TermChange, evidence: Evidence, what: str) -> Iterator[_Found]:
    kind: CauseKind = "machine" if evidence.disturbance else "host"
    told = (what, evidence.disturbance) if evidence.disturbance else (what,)
    yield _Found(kind=kind, change_s=change.change_s, evidence=told)


def _unexplained(change: TermChange, evidence: Evidence) -> Iterator[_Found]:
    what = "the timed steps take longer, the steps looked at after them do not"
    told = (what, evidence.disturbance) if evidence.disturbance else (what,)
    yield _Found(kind="unexplained", change_s=change.change_s, evidence=told)


_RULES = {
    "compute": _compute,
    "communication": _communication,
    "imbalance": _imbalance,
    "data": _data,
    "idle": _idle,
    UNEXPLAINED: _unexplained,
}


def _terms_of(found: _Found, attribution: Attribution) -> tuple[str, ...]:
    """Where in the step it is, the largest change first."""
    if found.group is None:
        return ()
    terms = [term for term in attribution.terms if term.name in GROUPS[found.group]]
    terms.sort(key=lambda term: abs(term.change_s), reverse=True)
    shown = [f"{term.name} {_ms(term.before_s)} → {_ms(term.after_s)}" for term in terms[:2]]
    return (", ".join(shown),)


def _alone(evidence: Evidence) -> tuple[str, ...]:
    change = evidence.communication
    if change is None:
        return ()
    return (f"all collectives of a step alone: {_ms(change.before_s)} → {_ms(change.after_s)}",)


def _increase(count: TermChange | None) -> int:
    return max(0, round(count.change_s)) if count is not None else 0


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"
