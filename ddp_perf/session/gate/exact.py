"""Exact gates: the structure of a step and its loss, and acknowledgements of their values."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from ddp_perf.baselines.save import is_comparable, is_counted_alike, known_structure, other_sizes
from ddp_perf.baselines.work import StoredWork
from ddp_perf.core.baseline import Acknowledgement, Baseline, CaseBaseline
from ddp_perf.core.case import Case
from ddp_perf.core.launch import FACTS, Collective, LaunchResult, Structure, why_missing
from ddp_perf.core.measurement import Finding, Known, Measurement
from ddp_perf.core.metric import EXACT, LOSS, STRUCTURE
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.errors import BaselineError
from ddp_perf.render.units import change_text, counted, field_changes
from ddp_perf.session.result import SuiteResult

# The structure gate: it is exact on any machine, and takes no part of the error rate.


def judge_structure(
    case: Case,
    launches: Sequence[LaunchResult],
    own: Structure | None,
    shared: Mapping[str, StoredWork],
) -> Verdict:
    """Judge by the structure that the suite's file states, or else by this machine's own.

    The suite's file wins, because it changes in the commit that changes the code, also if it states
    other work: then it was not committed. No reason states a remedy.
    """
    stated = known_structure(case, shared)
    if stated is None and (other := shared.get(case.id)) is not None:
        changed = ", ".join(field_changes(other.options, case.work()))
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
        return min(found, key=lambda verdict: verdict.outcome.severity)
    count = counted(len(stored.collectives), "collective")
    return Verdict(outcome=Outcome.PASS, reason=f"{count} a step, as in the baseline")


def _not_counted(launches: Sequence[LaunchResult]) -> str:
    return f"no structure was counted {why_missing(launches, 'structure') or 'in every launch'}"


def with_missing(verdict: Verdict, launches: Sequence[LaunchResult]) -> Verdict:
    """Return the verdict on the structure with the other facts that failed to be read.

    It passes only with the digests: nothing else shows that the ranks trained together.
    """
    if verdict.outcome.is_good and (why := why_missing(launches, "digest")) is not None:
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
    if not verdict.outcome.is_compared:
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
    if case.training.compile:
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


# The loss gate: training that is faster because it computes something else, or wrongly, is red.
#
# It compares the mean loss of the ranks in steps that are counted from the initial parameters on.
# It takes no part of the error rate: what rounding may change is measured, and far below a mistake.


UNSEEDED = (
    "seed what is random in the workload (a generator of its own for each batch), or set"
    " tolerances: {loss: null}"
)

_MEND = "fix it, or set tolerances: {loss: null} in the suite file"

# A step is stored if its launches agree far better than a session must agree with them: another
# processor rounds otherwise than two launches with other last bits (docs/correctness.md).
_OF_THE_TOLERANCE = 0.1


# Of rounding in the coarsest type: half precision has fewer places than the tolerances assume.
_UNITS = 4


class _Change(NamedTuple):
    """The change of the loss of one step."""

    step: str
    old: float
    new: float
    share: float  # of the largest loss


def judge_loss(
    launches: Sequence[LaunchResult], stored: Mapping[str, float], *, tolerance: float
) -> Verdict:
    """Judge the losses by the stored ones. Losses that a rank failed to read are INVALID.

    A loss that is not finite is a REGRESSION whatever is stored, because it compares with nothing.
    A higher loss is one, and so is a lower one. A reason states a remedy only if the losses
    compare with nothing: one is not finite, or the launches differ from their first step on.
    """
    if not all(launch.losses for launch in launches):
        reason = f"the losses could not be read {why_missing(launches, 'losses')}"
        return Verdict(outcome=Outcome.INVALID, reason=reason)
    problem = why_not_stored(launches, tolerance)
    if problem is not None and not is_finite(launches):
        return Verdict(outcome=Outcome.REGRESSION, reason=problem)
    if stored:
        return _compare(launches, stored, tolerance)
    if problem is not None:
        return Verdict(outcome=Outcome.INVALID, reason=problem)
    return Verdict(outcome=Outcome.NO_BASELINE, reason="no losses of this case are stored")


def loss_tolerance(case: Case, launches: Sequence[LaunchResult]) -> float | None:
    """Return the tolerance of the suite, or that of the precision, or of the types if coarser.

    A model may be of half precision itself, whatever precision the suite states.
    """
    given = case.loss_tolerance
    if given is None or case.tolerances.loss is not UNSET:
        return given
    return max(given, _UNITS * _unit(launches))


def _unit(launches: Iterable[LaunchResult]) -> float:
    return max((rank.loss_unit or 0.0 for launch in launches for rank in launch.ranks), default=0.0)


def _compare(
    launches: Sequence[LaunchResult], stored: Mapping[str, float], tolerance: float
) -> Verdict:
    found = [list(_changes(stored, losses_of(launch))) for launch in launches]
    if not found[0]:
        reason = f"only the losses of {_steps(stored)} are stored, and this session has no such one"
        return Verdict(outcome=Outcome.NO_BASELINE, reason=reason)
    beyond = [[one for one in each if one.share > tolerance] for each in found]
    changed = [each for each in beyond if each]
    if not changed:
        reason = f"the losses of {_steps(one.step for one in found[0])} are those of the baseline"
        return Verdict(outcome=Outcome.PASS, reason=reason)
    worst = max(changed, key=lambda each: max(one.share for one in each))
    first, largest = worst[0], max(worst, key=lambda one: one.share)
    where = ", ".join(dict.fromkeys([_text(first), _text(largest)]))
    if len(changed) < len(launches):
        where += f" in {len(changed)} of {len(launches)} launches"
    reason = (
        f"{where} ({largest.share:.2g} of the largest loss, tolerance {tolerance:.2g}); the"
        " training does other work, or computes it wrongly"
    )
    return Verdict(outcome=Outcome.REGRESSION, reason=reason)


def losses_to_store(launches: Sequence[LaunchResult], tolerance: float | None) -> dict[str, float]:
    """Return the losses that later sessions are compared with, or {} if there are none.

    A case that is not judged by its losses has none, nor has one whose losses are not finite, or
    not repeatable.
    """
    if tolerance is None or not all(launch.losses for launch in launches):
        return {}
    return _repeated(launches, tolerance) if is_finite(launches) else {}


def why_not_stored(launches: Sequence[LaunchResult], tolerance: float) -> str | None:
    """Return why no loss of the session can be stored, with the remedy, or None if one can."""
    if (where := _not_finite(launches)) is not None:
        return f"{where}; {_MEND}"
    if not _repeated(launches, tolerance):
        return f"{_first_difference(launches)}; {UNSEEDED}"
    return None


def is_finite(launches: Iterable[LaunchResult]) -> bool:
    """Return whether no loss of any rank is NaN or infinite."""
    return _not_finite(launches) is None


def losses_of(launch: LaunchResult) -> dict[str, float]:
    """Return the mean losses of the ranks that are finite, by step."""
    return {step: loss for step, loss in launch.losses.items() if loss is not None}


def _repeated(launches: Sequence[LaunchResult], tolerance: float) -> dict[str, float]:
    """Return the losses of the steps before the first one in which the launches differ.

    Every second launch begins with other last bits. So it shows from which step on rounding decides
    what a workload computes: there no two machines agree, although both are right.
    """
    allowed = max(_OF_THE_TOLERANCE * tolerance, _unit(launches))
    first, *others = (losses_of(launch) for launch in launches)
    repeated: dict[str, float] = {}
    for step in sorted(first, key=int):
        upto = {**repeated, step: first[step]}
        changes = [one for other in others for one in _changes(upto, other)]
        if any(one.share > allowed for one in changes):
            break
        repeated = upto
    return repeated


def _first_difference(launches: Sequence[LaunchResult]) -> str:
    step = min(losses_of(launches[0]), key=int)
    each = [losses_of(launch)[step] for launch in launches]
    return (
        f"the launches of this session differ in the loss of step {step}: {min(each):.6g} to"
        f" {max(each):.6g}"
    )


def _changes(old: Mapping[str, float], new: Mapping[str, float]) -> Iterator[_Change]:
    """Yield the change of each step that both have.

    It is a share of the largest loss: near zero, where training may end, no ratio means anything.
    """
    scale = max(map(abs, old.values()), default=0.0)
    for step in sorted(old.keys() & new.keys(), key=int):
        difference = abs(new[step] - old[step])
        share = difference / scale if scale else float(difference > 0)
        yield _Change(step, old[step], new[step], share)


def _not_finite(launches: Iterable[LaunchResult]) -> str | None:
    """Return the first loss of a rank that is NaN or infinite, in words, or None."""
    for launch in launches:
        for rank, result in enumerate(launch.ranks):
            for step, loss in result.losses.items():
                if loss is None:
                    return f"the loss of step {step} is NaN or infinite on rank {rank}"
    return None


def _steps(steps: Iterable[str]) -> str:
    numbers = list(steps)
    return f"{counted(len(numbers), 'step')} ({', '.join(numbers)})"


def _text(change: _Change) -> str:
    return f"loss of step {change.step}: {change.old:.6g} → {change.new:.6g}"


# Acknowledgements cover a slow-down, or the one value of an exact metric.


def with_acknowledged_value(
    finding: Finding, measurements: Mapping[str, Measurement], baseline: Baseline
) -> Finding:
    """Return the finding; one on an exact metric states whether its value is the acknowledged one.

    A structure is the same with its FLOPs, and losses are within their tolerance.
    """
    given = baseline.acknowledgement(finding.case_id, finding.metric)
    if given is None or finding.metric not in EXACT:
        return finding
    launches = measurements[finding.case_id].launches
    if finding.metric == STRUCTURE:
        same = given.structure is not None and counted_flops(launches) == given.flops
        same = same and all(one.ranks[0].structure == given.structure for one in launches)
    else:
        assert finding.tolerance is not None  # of the loss: it was judged
        verdict = judge_loss(launches, given.losses, tolerance=finding.tolerance)
        same = verdict.outcome is Outcome.PASS
    return msgspec.structs.replace(finding, as_acknowledged=same)


def acknowledged_as_measured(given: Acknowledgement, result: SuiteResult) -> Acknowledgement:
    """Return the acknowledgement with what this session has of its case and metric.

    Raises BaselineError if the session has nothing that could be acknowledged.
    """
    found, measured = result.finding(given.case, given.metric), result.measurements.get(given.case)
    what = f"{given.metric} of {given.case}"
    if found is None or measured is None or not measured.is_complete:
        raise BaselineError(f"--results: the session of {result.date} has no {what}")
    launches = measured.launches
    if given.metric == STRUCTURE:
        structure, flops = launches[0].ranks[0].structure, counted_flops(launches)
        return msgspec.structs.replace(given, structure=structure, flops=flops)
    if given.metric == LOSS:
        losses = losses_to_store(launches, loss_tolerance(measured.case, launches))
        if not losses:
            raise BaselineError(f"--results: {what} is not finite, or differs between launches")
        return msgspec.structs.replace(given, losses=losses)
    if found.verdict.ratio is None:
        raise BaselineError(f"--results: {what} was not compared: {found.reason}")
    return msgspec.structs.replace(given, ratio=found.verdict.ratio)


# Acknowledged regressions and missed targets: they are expected until a date.


def with_acknowledgement(finding: Finding, baseline: Baseline, date: str) -> Finding:
    """Return the finding with its acknowledgement, by the ``date`` of the session."""
    given = baseline.acknowledgement(finding.case_id, finding.metric)
    return msgspec.structs.replace(finding, known=_known(finding, given, date))


def _known(found: Finding, given: Acknowledgement | None, date: str) -> Known | None:
    """Return the state of an acknowledgement, or None if none applies to this verdict."""
    if given is None:
        return None
    if found.verdict.outcome.is_good:
        return Known(acknowledgement=given, state="over")
    if not found.verdict.outcome.is_red:
        return None
    if not given.holds(date):
        return Known(acknowledgement=given, state="expired")
    return Known(acknowledgement=given, state="grown" if _grown(found, given) else "expected")


def _grown(found: Finding, given: Acknowledgement) -> bool:
    """Return whether it is slower than was acknowledged: certainly, and by the tolerance.

    Of an exact metric, one value is acknowledged, and no other.
    """
    if found.metric in EXACT:
        return not found.as_acknowledged
    interval = found.verdict.interval
    if given.ratio is None or interval is None or found.tolerance is None:
        return False
    return interval[0] > given.ratio * (1 + found.tolerance)
