"""Rules that turn changed terms into causes: each cause has its size and its evidence.

A term reports where in the step the time goes, and often the term is the cause. If several causes
change the same term, other measurements separate them: the counted collectives of a step, the time
of the same collectives alone, and the control.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ddp_perf.core.launch import Structure
from ddp_perf.core.verdict import Cause, CauseKind, Delta, Explanation
from ddp_perf.render.units import milliseconds
from ddp_perf.stats.step_change import GROUPS, UNEXPLAINED, Attribution

_MACHINE_MOVED = 0.02  # of the control: a smaller change is the control's own noise
_HALF = 0.5  # of a term's change: a cause that explains as much gets all of it


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements beside the terms, of this session and of the baseline."""

    structure_before: Structure | None  # None: the baseline has no structure
    structure_after: Structure
    structure_changes: tuple[str, ...]  # the differences of the two structures in words
    communication: Delta | None  # seconds of all collectives of a step, alone
    lag: Delta | None  # seconds of the slowest rank of a launch behind a typical rank
    host_reads: Delta | None  # count a step
    allocator_retries: Delta | None  # count a step
    control: Delta | None  # seconds; None: not comparable
    on_gpu: bool
    sees_communication: bool  # False: communication is part of forward and backward
    slowest_rank: int  # over all launches
    slowest_lag_s: float  # of that rank
    lagging: tuple[int, ...]  # that rank, and others that lag as well
    slowest_share: float  # of the steps: how often that rank is the last one
    slowest_where: str  # its device and host
    slow_node: str | None = None  # a node that works longer than the others, in words
    changed: tuple[str, ...]  # differences of the environment, in words
    disturbance: str | None  # a disturbance of most launches, in words

    @property
    def does_other_work(self) -> bool:
        """True if the step has another structure than the baseline's step."""
        before = self.structure_before
        return before is not None and before != self.structure_after


def grown_by_count(before: Structure | None, after: Structure) -> tuple[str, ...]:
    """Return the groups of terms that must have grown because a step has more collectives."""
    return ("unhidden",) if before is not None and _exchanges_more(before, after) else ()


def find_causes(
    case_id: str, attribution: Attribution, evidence: Evidence, launches: int
) -> Explanation:
    """Find the causes of a case's change and return them in order, the largest first.

    If these launches were not slower, the only causes are those that were counted.
    """
    step = attribution.step
    causes = _merged(_causes_of(attribution, evidence))
    if step.change > 0:
        left = step.change - sum(cause.change_s for cause in causes)
        if left > _HALF * step.change and all(cause.kind != "unexplained" for cause in causes):
            causes.append(_too_uncertain(left))
    return Explanation(
        case_id=case_id,
        step_change_s=step.change,
        causes=tuple(
            Cause(
                kind=found.kind,
                change_s=found.change_s,
                share=found.change_s / step.change if step.change > 0 else 0.0,
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
    """A cause before it has a share of the step's change."""

    kind: CauseKind
    change_s: float
    evidence: tuple[str, ...] = ()
    rank: int | None = None
    groups: tuple[str, ...] = ()  # their terms are part of the evidence
    likely: bool = False
    structural: bool = False  # its evidence includes that the step does other work than before


def _causes_of(attribution: Attribution, evidence: Evidence) -> list[_Found]:
    """Return the causes of each group that grew, if the step grew.

    The gate has already decided, from more sessions, that the step is slower. A group that shrank
    makes no step slower.
    """
    is_slower = attribution.step.change > 0
    grown = [group for group in attribution.groups if is_slower and group.change > 0]
    causes = [
        _with_size(cause, group) for group in grown for cause in _RULES[group.name](group, evidence)
    ]
    if likely := attribution.likely:
        causes += [
            msgspec.structs.replace(
                cause,
                likely=True,
                evidence=(*cause.evidence, f"chance alone can cause ± {_ms(likely.uncertainty)}"),
            )
            for cause in _RULES[likely.name](likely, evidence)
        ]
    if evidence.does_other_work and not any(cause.structural for cause in causes):
        causes.append(_other_work(0.0, evidence))  # no term shows its time: it is hidden
    return causes


def _with_size(cause: _Found, group: Delta) -> _Found:
    """Add how uncertain the size is to a cause that a count or the lag has shown."""
    if group.is_certain:
        return cause
    size = f"its size is uncertain by ± {_ms(group.uncertainty)}"
    return msgspec.structs.replace(cause, evidence=(*cause.evidence, size))


def _merged(causes: Iterable[_Found]) -> list[_Found]:
    """Join causes of the same kind: one cause may change several groups of terms."""
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
                structural=first.structural or cause.structural,
            )
    return list(merged.values())


def _compute(change: Delta, evidence: Evidence) -> Iterator[_Found]:
    """Yield the machine's part and the rest. The machine slows the control, too."""
    control, by_machine = evidence.control, 0.0
    if control is not None and control.is_certain and control.change > 0:
        ratio = control.after / control.before - 1
        share = change.before * ratio / change.change
        if ratio > _MACHINE_MOVED and share >= 1 - _HALF:
            by_machine = change.change * min(share, 1.0)
            what = f"the control, the same matrix product in every session, changed by {ratio:+.1%}"
            yield _Found(kind="machine", change_s=by_machine, evidence=(what, *evidence.changed))
    left = change.change - by_machine
    if not by_machine or left > change.uncertainty:
        yield _of_computation(left, change, evidence)


def _of_computation(change_s: float, change: Delta, evidence: Evidence) -> _Found:
    """Return the cause of slower phases.

    On a GPU the phases contain what the host waits for; with FSDP they contain all communication.
    """
    retries = evidence.allocator_retries
    found = _Found(
        kind="compute", change_s=change_s, evidence=evidence.changed, groups=(change.name,)
    )
    if retries is not None and retries.is_certain and retries.change > 0:
        full = "the GPU's memory was full in the profiled steps, and the allocator freed its cache"
        return msgspec.structs.replace(found, kind="memory", evidence=(full,))
    if evidence.on_gpu and _more_reads(evidence):
        return _structural(
            msgspec.structs.replace(found, kind="host sync", evidence=(_reads(evidence),)), evidence
        )
    if not evidence.sees_communication and _alone_s(evidence) >= _HALF * change_s:
        if _does_more(evidence):
            return _other_work(change_s, evidence, groups=(change.name,))
        lines = (*_alone(evidence), *evidence.changed)
        return msgspec.structs.replace(found, kind="communication", evidence=lines)
    return found


def _communication(change: Delta, evidence: Evidence) -> Iterator[_Found]:
    """Yield the cause: other collectives, slower collectives, or less overlap."""
    alone = evidence.communication
    if _more_reads(evidence):
        yield _structural(_of_terms("host sync", change, (_reads(evidence),)), evidence)
    elif _does_more(evidence):
        left = change.change - _alone_s(evidence) if _alone_s(evidence) > 0 else 0.0
        if not change.is_certain or left < _HALF * change.change:
            left = 0.0  # one cause explains all of it
        yield _other_work(change.change - left, evidence, groups=(change.name,))
        if left:
            overlap = _lost_overlap(change, evidence)
            yield msgspec.structs.replace(overlap, change_s=left)
    elif alone is None or alone.change >= _HALF * change.change:
        slower = _structural(_of_terms("communication", change, ()), evidence)
        lines = (*slower.evidence, *_alone(evidence), *evidence.changed)
        yield msgspec.structs.replace(slower, evidence=lines)
    else:
        yield _lost_overlap(change, evidence)


def _lost_overlap(change: Delta, evidence: Evidence) -> _Found:
    less = "less of the communication overlaps with the backward"
    found = _structural(_of_terms("lost overlap", change, (less,)), evidence)
    return msgspec.structs.replace(found, evidence=(*found.evidence, *_alone(evidence)))


def _of_terms(kind: CauseKind, change: Delta, lines: tuple[str, ...]) -> _Found:
    """Return a cause that takes all of a group's change."""
    return _Found(kind=kind, change_s=change.change, evidence=lines, groups=(change.name,))


def _structural(found: _Found, evidence: Evidence) -> _Found:
    """Add the changes of the structure, if there are any, to the evidence of a cause."""
    return msgspec.structs.replace(
        found,
        evidence=(*found.evidence, *evidence.structure_changes),
        structural=evidence.does_other_work,
    )


def _does_more(evidence: Evidence) -> bool:
    before = evidence.structure_before
    return before is not None and _exchanges_more(before, evidence.structure_after)


def _exchanges_more(before: Structure, after: Structure) -> bool:
    """Return whether a step has more calls, or more bytes. One bucket instead of two is neither."""
    more_calls = len(after.collectives) > len(before.collectives)
    return more_calls or _bytes(after) > _bytes(before)


def _other_work(change_s: float, evidence: Evidence, groups: tuple[str, ...] = ()) -> _Found:
    before, after = evidence.structure_before, evidence.structure_after
    kind: CauseKind = "other collectives"
    if before is not None and before.collectives == after.collectives:
        kind = "compute"  # of another model
    elif before is not None and _exchanges_more(before, after):
        kind = "more communication" if _bytes(after) > _bytes(before) else "smaller buckets"
    lines = (*evidence.structure_changes, *_alone(evidence), *evidence.changed)
    if _more_reads(evidence):
        kind, lines = "host sync", (_reads(evidence), *lines)
    return _Found(kind=kind, change_s=change_s, evidence=lines, groups=groups, structural=True)


def _bytes(structure: Structure) -> int:
    return sum(collective.bytes for collective in structure.collectives)


def _imbalance(change: Delta, evidence: Evidence) -> Iterator[_Found]:
    """Yield a slow node or a straggler if it lags in every launch, else the host.

    Ranks that are late in turn have the same mean work. A baseline without a lag counts as one
    whose lag was zero.
    """
    lag, now_s = evidence.lag, evidence.slowest_lag_s
    more_s = now_s if lag is None else min(lag.change, now_s)
    if more_s < _HALF * change.change:
        yield from _of_host(
            change, evidence, "ranks are late in turn; the mean work of no rank grew by as much"
        )
        return
    if evidence.slow_node is not None:
        yield _Found(kind="slow node", change_s=change.change, evidence=(evidence.slow_node,))
        return
    rank, before = evidence.slowest_rank, ""
    if lag is not None:
        before = f" (the slowest one before: {_ms(lag.before)})"
    what = (
        f"rank {rank} ({evidence.slowest_where}) works {_ms(now_s)} longer than"
        f" a typical rank{before}, and is the last one in {evidence.slowest_share:.0%} of the steps"
    )
    others = ", ".join(str(one) for one in evidence.lagging if one != rank)
    lines = (what, f"at least half as far behind: {others}") if others else (what,)
    yield _Found(kind="straggler", change_s=change.change, evidence=lines, rank=rank)


def _data(change: Delta, evidence: Evidence) -> Iterator[_Found]:
    what = f"the wait for a batch went from {_ms(change.before)} to {_ms(change.after)}"
    yield _Found(kind="data", change_s=change.change, evidence=(what,))


def _idle(change: Delta, evidence: Evidence) -> Iterator[_Found]:
    if _more_reads(evidence):
        yield _Found(kind="host sync", change_s=change.change, evidence=(_reads(evidence),))
        return
    yield from _of_host(
        change, evidence, "the ranks had no core, or slept, when they should have computed"
    )


def _of_host(change: Delta, evidence: Evidence, what: str) -> Iterator[_Found]:
    kind: CauseKind = "machine" if evidence.disturbance else "host"
    yield _Found(kind=kind, change_s=change.change, evidence=_with_disturbance(what, evidence))


def _unexplained(change: Delta, evidence: Evidence) -> Iterator[_Found]:
    what = "the profiled steps, which follow the timed ones, do not show it"
    lines = _with_disturbance(what, evidence)
    yield _Found(kind="unexplained", change_s=change.change, evidence=lines)


def _with_disturbance(what: str, evidence: Evidence) -> tuple[str, ...]:
    return (what, evidence.disturbance) if evidence.disturbance else (what,)


def _too_uncertain(change_s: float) -> _Found:
    what = "no term grew by as much and by more than chance explains"
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
    """Return, as one line, the two terms of a cause that changed most."""
    members = {term for group in found.groups for term in GROUPS[group]}
    terms = [term for term in attribution.terms if term.name in members]
    terms.sort(key=lambda term: abs(term.change), reverse=True)
    shown = [f"{term.name} {_ms(term.before)} → {_ms(term.after)}" for term in terms[:2]]
    return (", ".join(shown),) if shown else ()


def _alone(evidence: Evidence) -> tuple[str, ...]:
    change = evidence.communication
    if change is None:
        return ("the time of all collectives of a step alone was not measured",)
    return (f"all collectives of a step alone: {_ms(change.before)} → {_ms(change.after)}",)


def _alone_s(evidence: Evidence) -> float:
    """Return how much longer all collectives take alone; 0 if that is not certain."""
    change = evidence.communication
    return change.change if change is not None and change.is_certain else 0.0


def _reads(evidence: Evidence) -> str:
    more = _more_reads(evidence)
    return f"the host waits for {more:g} more value{'s' if more > 1 else ''} a step (.item())"


def _more_reads(evidence: Evidence) -> float:
    """Return by how many values a step the host reads more than before."""
    return max(0.0, evidence.host_reads.change) if evidence.host_reads is not None else 0.0


def _ms(seconds: float) -> str:
    return f"{milliseconds(seconds)} ms"
