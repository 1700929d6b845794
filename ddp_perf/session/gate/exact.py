"""The structure gate: it is exact on any machine, and takes no part of the error rate."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.baselines.save import is_comparable, is_counted_alike
from ddp_perf.baselines.structures import known_structure, other_sizes
from ddp_perf.core.baseline import CaseBaseline, CaseStructure
from ddp_perf.core.case import Case
from ddp_perf.core.launch import FACTS, Collective, LaunchResult, Structure, why_missing
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.render.units import change_text, counted, field_changes


def judge_structure(
    case: Case,
    launches: Sequence[LaunchResult],
    own: Structure | None,
    shared: Mapping[str, CaseStructure],
) -> Verdict:
    """Judge by the structure that the suite's file states, or else by this machine's own.

    The suite's file wins, because it changes in the commit that changes the code, also if it states
    other work: then it was not committed. No reason states a remedy.
    """
    stated = known_structure(case, shared)
    if stated is None and (other := shared.get(case.id)) is not None:
        changed = ", ".join(field_changes(other.work, case.work()))
        reason = f"the stored structure is of other work: {changed}"
        return Verdict(outcome=Outcome.INCOMPARABLE, reason=reason)
    if (stored := stated or own) is not None:
        return compare_structure(launches, stored)
    reason = "no structure of this case is stored"
    if sizes := other_sizes(case, shared):
        reason = (
            f"no structure of {case.world_size} ranks is stored, and that of"
            f" {' and '.join(map(str, sizes))} does not determine it"
        )
    return Verdict(outcome=Outcome.NO_BASELINE, reason=reason)


def compare_structure(launches: Sequence[LaunchResult], stored: Structure) -> Verdict:
    """Compare rank 0's structure in every launch with the stored one.

    More parameters, gradients, collectives or bytes are a REGRESSION, and less of them is an
    IMPROVEMENT. The same amount in another order is UNDECIDED: the step time shows its cost. A
    launch that counted none makes the others INVALID, unless they show a change.
    """
    found = []
    for launch in launches:
        structure = launch.ranks[0].structure
        if structure is None:
            found.append(Verdict(outcome=Outcome.INVALID, reason=_not_counted(launches)))
        elif changes := structure_changes(stored, structure):
            outcome, amount = _amount_of_work(stored, structure)
            reason = f"the step does {amount} work than the baseline's: {'; '.join(changes)}"
            found.append(Verdict(outcome=outcome, reason=reason))
    if found:
        return min(found, key=lambda verdict: _WORST_FIRST.index(verdict.outcome))
    count = counted(len(stored.collectives), "collective")
    return Verdict(outcome=Outcome.PASS, reason=f"{count} a step, as in the baseline")


_WORST_FIRST = (
    Outcome.REGRESSION,
    Outcome.INVALID,
    Outcome.UNDECIDED,
    Outcome.IMPROVEMENT,
)


def _not_counted(launches: Sequence[LaunchResult]) -> str:
    return f"no structure was counted {why_missing(launches, 'structure') or 'in every launch'}"


def with_missing(verdict: Verdict, launches: Sequence[LaunchResult]) -> Verdict:
    """Return the verdict on the structure with the other facts that failed to be read.

    It passes only with the digests: nothing else shows that the ranks trained together.
    """
    passes = verdict.outcome in (Outcome.PASS, Outcome.IMPROVEMENT)
    if passes and (why := why_missing(launches, "digest")) is not None:
        reason = f"the parameters of the ranks were not compared {why}"
        verdict = Verdict(outcome=Outcome.INVALID, reason=reason)
    for fact in FACTS:
        if fact not in ("structure", "digest") and (why := why_missing(launches, fact)) is not None:
            reason = f"{verdict.reason}; no {_WORDS[fact]} {why}"
            verdict = msgspec.structs.replace(verdict, reason=reason)
    return verdict


_WORDS = {
    "control": "control after the steps",
    "profile": "profile",
    "losses": "losses",
    "ddp_logging": "record of DDP",
    "probe": "terms of the step",
}


def _amount_of_work(old: Structure, new: Structure) -> tuple[Outcome, str]:
    """Return the outcome of a changed structure: it is a regression only if the work grew."""
    before, after = _amounts(old), _amounts(new)
    if any(now > then for then, now in zip(before, after, strict=True)):
        return Outcome.REGRESSION, "more"
    if before != after:
        return Outcome.IMPROVEMENT, "less"
    return Outcome.UNDECIDED, "as much, but other"


def _amounts(structure: Structure) -> tuple[int, ...]:
    sent = sum(collective.bytes for collective in structure.collectives)
    return structure.parameters, structure.gradient_bytes, len(structure.collectives), sent


def with_flops(
    verdict: Verdict,
    launches: Sequence[LaunchResult],
    case: Case,
    stored: CaseBaseline | None,
    torch: str,
) -> Verdict:
    """Return the verdict on the structure with the FLOPs of a step: fewer are a REGRESSION, too.

    Both counts are exact, so a step that computes less does other work, until someone accepts it.
    Launches may count different steps of a workload that decides what to compute: then it is red if
    all of them are off the stored count. A PASS states why FLOPs are not compared.
    """
    if stored is None or not stored.flops or not is_comparable(stored, case):
        return verdict
    if verdict.outcome in (Outcome.NO_BASELINE, Outcome.INCOMPARABLE):
        return verdict
    if (why := _not_compared(launches, case, stored, torch)) is not None:
        reason = f"{verdict.reason}; FLOPs are not compared: {why}"
        passes = verdict.outcome is Outcome.PASS
        return msgspec.structs.replace(verdict, reason=reason) if passes else verdict
    counts = sorted({launch.ranks[0].flops or 0 for launch in launches})
    if stored.flops in counts:
        return verdict
    now = " to ".join(f"{count:,}" for count in dict.fromkeys([counts[0], counts[-1]]))
    change = change_text("FLOPs of a step:", f"{stored.flops:,}", now)
    before = verdict.reason
    if verdict.outcome is Outcome.PASS:
        before = f"the step computes {_amount(stored.flops, counts)} than the baseline's"
    return Verdict(outcome=Outcome.REGRESSION, reason=f"{before}; {change}")


def compared_flops(
    launches: Sequence[LaunchResult], case: Case, stored: CaseBaseline | None, torch: str
) -> tuple[int, int] | None:
    """Return the stored FLOPs of a step and those of this session, or None if they do not compare.

    They do not either if launches counted different steps.
    """
    if stored is None or not stored.flops or not is_comparable(stored, case):
        return None
    if _not_compared(launches, case, stored, torch) is not None:
        return None
    now = counted_flops(launches)
    return None if now is None else (stored.flops, now)


def _amount(before: int, counts: Sequence[int]) -> str:
    if before < counts[0]:
        return "more"
    return "less" if counts[-1] < before else "other work"


def _not_compared(
    launches: Sequence[LaunchResult], case: Case, stored: CaseBaseline, torch: str
) -> str | None:
    """Return why the FLOPs of a step cannot be compared with the stored ones, or None."""
    if case.compile:
        return "a compiler replaces the operators"
    if not all(launch.ranks[0].one_batch for launch in launches):
        if case.script is not None:
            return "its steps compute different amounts"
        return "an iterator gives the batches, maybe of several sizes"
    if not all(launch.ranks[0].flops for launch in launches):
        return "this session counted none"
    if not is_counted_alike(stored.flops_torch, torch):
        return f"torch {stored.flops_torch} counted the stored ones, and has other formulas"
    return None


def counted_flops(launches: Sequence[LaunchResult]) -> int | None:
    """Return the FLOPs of a step of rank 0, or None if steps differ, or may differ."""
    counts = {launch.ranks[0].flops for launch in launches}
    same = len(counts) == 1 and all(launch.ranks[0].one_batch for launch in launches)
    return counts.pop() if same else None


def structure_changes(old: Structure, new: Structure) -> list[str]:
    """Return each change between two structures, with both figures."""
    changes = [
        change_text(name.replace("_", " "), f"{getattr(old, name):,}", f"{getattr(new, name):,}")
        for name in ("parameters", "gradient_bytes")
        if getattr(old, name) != getattr(new, name)
    ]
    if old.buckets != new.buckets:
        before, after = bucket_sizes(old.buckets), bucket_sizes(new.buckets)
        changes.append(f"{change_text('buckets', before, after)} bytes")
    fewer = collections.Counter(old.collectives)
    more = collections.Counter(new.collectives)
    fewer, more = fewer - more, more - fewer
    changes += [f"{_name(c, n)} more a step" for c, n in sorted(more.items())]
    changes += [f"{_name(c, n)} fewer a step" for c, n in sorted(fewer.items())]
    if not changes and old.collectives != new.collectives:
        changes.append("the same collectives in another order")
    return changes


def _name(collective: Collective, count: int) -> str:
    return f"{count} {collective.kind} of {collective.bytes:,} bytes ({collective.dtype})"


def bucket_sizes(buckets: Sequence[int]) -> str:
    """Format the bucket sizes in their order; equal neighbours become one entry with a count."""
    runs = [(size, len(list(run))) for size, run in itertools.groupby(buckets)]
    sizes = [f"{count} × {size:,}" if count > 1 else f"{size:,}" for size, count in runs]
    return " + ".join(sizes) or "none"
