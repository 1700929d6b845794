"""The structure gate: it is exact on any machine, and takes no part of the error rate."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping, Sequence

from ddp_perf.core.baseline import CaseStructure
from ddp_perf.core.case import Case
from ddp_perf.core.launch import Collective, LaunchResult, Structure
from ddp_perf.core.scaling_key import RANKS, work_without
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.render.units import change_text, counted


def judge_structure(
    case: Case,
    launches: Sequence[LaunchResult],
    stored: Structure | None,
    shipped: Mapping[str, CaseStructure],
) -> Verdict:
    """Judge by this machine's own structure, or else by the structure that ships for any machine.

    The shipped structures are of one and of two ranks. Plain DDP does the same at any larger
    size: every rank reduces whole buckets, which follow from the model and the options. A hook
    or FSDP divides the sent bytes by the ranks, so the structure of two ranks does not
    determine that of four: the verdict is INCONCLUSIVE.
    """
    alike = [
        one
        for one in shipped.values()
        if work_without(one.work, RANKS) == work_without(case.work(), RANKS)
    ]
    same = [one.structure for one in alike if one.work == case.work()]
    if stored is None and not same and alike:
        if case.strategy != "ddp" or case.comm_hook is not None:
            sizes = " and ".join(str(one.work["world_size"]) for one in alike)
            reason = (
                f"no structure of {case.world_size} ranks ships, and that of {sizes} does not"
                " determine it; --save-baseline stores this machine's"
            )
            return Verdict(outcome=Outcome.INCONCLUSIVE, reason=reason)
        same = [one.structure for one in alike]
    return compare_structure(launches, stored or next(iter(same), None))


def compare_structure(launches: Sequence[LaunchResult], stored: Structure | None) -> Verdict:
    """Compare rank 0's structure in every launch with the stored one.

    More parameters, gradients, collectives or bytes are a REGRESSION, and less of them is an
    IMPROVEMENT. The same amount in another order is INCONCLUSIVE: the step time shows its cost.
    """
    if stored is None:
        return Verdict(outcome=Outcome.NO_BASELINE, reason="the baseline has no structure")
    found = []
    for launch in launches:
        structure = launch.ranks[0].structure
        assert structure is not None  # the case trains
        if changes := structure_changes(stored, structure):
            outcome, amount = _amount_of_work(stored, structure)
            reason = (
                f"the step does {amount} work than the baseline's: {'; '.join(changes)};"
                ' --save-baseline=accept --reason "…" takes it over, if it is intended'
            )
            found.append(Verdict(outcome=outcome, reason=reason))
    if found:
        return min(found, key=lambda verdict: _WORST_FIRST.index(verdict.outcome))
    count = counted(len(stored.collectives), "collective")
    return Verdict(outcome=Outcome.PASS, reason=f"{count} a step, as in the baseline")


_WORST_FIRST = (Outcome.REGRESSION, Outcome.INCONCLUSIVE, Outcome.IMPROVEMENT)


def _amount_of_work(old: Structure, new: Structure) -> tuple[Outcome, str]:
    """Return the outcome of a changed structure: it is a regression only if the work grew."""
    before, after = _amounts(old), _amounts(new)
    if any(now > then for then, now in zip(before, after, strict=True)):
        return Outcome.REGRESSION, "more"
    if before != after:
        return Outcome.IMPROVEMENT, "less"
    return Outcome.INCONCLUSIVE, "as much, but other"


def _amounts(structure: Structure) -> tuple[int, ...]:
    sent = sum(collective.bytes for collective in structure.collectives)
    return structure.parameters, structure.gradient_bytes, len(structure.collectives), sent


def structure_changes(old: Structure, new: Structure) -> list[str]:
    """Return each change between two structures, with both figures."""
    changes = [
        change_text(name.replace("_", " "), f"{getattr(old, name):,}", f"{getattr(new, name):,}")
        for name in ("parameters", "gradient_bytes")
        if getattr(old, name) != getattr(new, name)
    ]
    if old.buckets != new.buckets:
        changes.append(f"{change_text('buckets', _sizes(old.buckets), _sizes(new.buckets))} bytes")
    before = collections.Counter(old.collectives)
    after = collections.Counter(new.collectives)
    changes += [f"{_name(c, n)} more a step" for c, n in sorted((after - before).items())]
    changes += [f"{_name(c, n)} fewer a step" for c, n in sorted((before - after).items())]
    if not changes and old.collectives != new.collectives:
        changes.append("the same collectives in another order")
    return changes


def _name(collective: Collective, count: int) -> str:
    return f"{count} {collective.kind} of {collective.bytes:,} bytes ({collective.dtype})"


def _sizes(buckets: Sequence[int]) -> str:
    """Format the bucket sizes in their order; equal neighbours become one entry with a count."""
    runs = [(size, len(list(run))) for size, run in itertools.groupby(buckets)]
    sizes = [f"{count} × {size:,}" if count > 1 else f"{size:,}" for size, count in runs]
    return " + ".join(sizes) or "none"
