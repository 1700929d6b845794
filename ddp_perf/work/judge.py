"""The verdict on the work of a case: it is exact, and the same on every machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ddp_perf.core.case import Case
from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import StepWork
from ddp_perf.render.units import counted as number_of
from ddp_perf.work.baseline import StoredWork, WorkBaseline, torch_minor
from ddp_perf.work.changes import grows, shrinks, work_changes
from ddp_perf.work.edited_lines import edited_lines
from ddp_perf.work.options import option_changes
from ddp_perf.work.text import change_sentence, in_all, more_flops
from ddp_perf.work.values import WorkChange, WorkVerdict

# Of the operations of a step. A call takes about a tenth of the time in which the host dispatches
# an operation, so these are a thousandth of the host's work: a function was extracted, or inlined.
_SMALL_SHARE = 0.01
_FEW_CALLS = 3  # of a step of few operations


def judge_work(
    case: Case,
    counted: StepWork,
    baselines: Sequence[WorkBaseline],
    *,
    torch: str,
    suite_file: Path | None = None,
    package_differs: bool = False,
) -> WorkVerdict:
    """Judge the counted step of a case by what is stored for it.

    More of anything is a REGRESSION, but for a few calls of Python functions. So is other work of
    the model: fewer FLOPs, parameters or bytes to send. Only less is an IMPROVEMENT. Work that only
    moved is UNDECIDED. ``baselines`` are those of this version of torch and of the others,
    nearest first; another version counts other operations, so its counts are shown and decide
    nothing. No reason states a remedy. ``package_differs``: an edited line may be one of this
    package, whose code may be another one than that of the stored counts.
    """
    found = comparison_of(case, baselines, torch)
    if found is None:
        return WorkVerdict(outcome=Outcome.NO_BASELINE, reason="no counts of this case are stored")
    version, stored = found
    changes = work_changes(stored.step, counted)
    alike = stored.step.computed == counted.computed
    if not alike:
        changes = tuple(change for change in changes if not _is_of_size(change))
    options = option_changes(stored.options, case.work(), suite_file, case.technique)
    if version == torch_minor(torch):
        outcome, reason = _outcome(stored.step, counted, changes)
        if options and outcome is Outcome.PASS:
            reason += ", but it is stored with other options"
        if changes and outcome is not Outcome.PASS:
            reason += f"; in all {in_all(stored.step, counted)}"
        if not alike:
            reason += "; bytes are not compared, since only one of the counts computed values"
    else:
        outcome = Outcome.INCOMPARABLE
        difference = number_of(len(changes), "difference") if changes else "no difference"
        reason = (
            f"no counts of torch {torch_minor(torch)} are stored, and torch {version} is not"
            f" compared with it: {difference}"
        )
    return WorkVerdict(
        outcome=outcome,
        reason=reason,
        changes=changes,
        options=options,
        # Other options run other lines of this package, which are no edit.
        lines=edited_lines(stored.step, counted, package_differs=package_differs and not options)
        if changes
        else (),
    )


def _is_of_size(change: WorkChange) -> bool:
    """Return whether only sizes differ: kernels that compute may allocate what others do not."""
    same = change.before == change.after and change.moved_from is None
    return change.kind == "memory" or (same and not change.flops)


def comparison_of(
    case: Case, baselines: Sequence[WorkBaseline], torch: str
) -> tuple[str, StoredWork] | None:
    """Return what the work of a case is compared with, and its version of torch, or None.

    That of this version comes first, and then that of the first other one that has the case.
    """
    version = torch_minor(torch)
    own_first = sorted(baselines, key=lambda baseline: baseline.torch != version)
    for baseline in own_first:
        stored = baseline.of(case)
        if stored is not None:
            return baseline.torch, stored
    return None


def _outcome(old: StepWork, new: StepWork, changes: Sequence[WorkChange]) -> tuple[Outcome, str]:
    """Return the outcome, and a sentence with the first change that decides it."""
    operations = sum(one.count for one in new.operations)
    calls = sum(one.after - one.before for one in changes if one.kind == "calls")
    if abs(calls) <= max(_FEW_CALLS, _SMALL_SHARE * operations):
        changes = [one for one in changes if one.kind != "calls"]
    if not changes:
        few = f", with {abs(calls)} {'more' if calls > 0 else 'fewer'} calls of Python functions"
        as_stored = f"{number_of(operations, 'operation')} a step, as stored"
        return Outcome.PASS, f"{as_stored}{few if calls else ''}"
    more = [change for change in changes if grows(change)]
    less = [change for change in changes if shrinks(change)]
    if more:
        text = f"the step does more work than stored{more_flops(old, new)}"
        return Outcome.REGRESSION, _sentence(text, more)
    if other := _other_work(old, new):
        return Outcome.REGRESSION, _sentence(
            f"the step does other work than stored: {other}", less or changes
        )
    if less:
        return Outcome.IMPROVEMENT, _sentence("the step does less work than stored", less)
    where = "elsewhere in it" if all(one.moved_from for one in changes) else "not the same"
    text = f"the step does as much work as stored, but {where}"
    return Outcome.UNDECIDED, _sentence(text, changes)


def _sentence(text: str, changes: Sequence[WorkChange]) -> str:
    return f"{text}: {change_sentence(changes[0])}"


def _other_work(old: StepWork, new: StepWork) -> str | None:
    """Return what of the model's own work is less, or None: a step that trains must do it."""
    if _lacks(_flops(old), _flops(new)):
        same = sum(_flops(old).values()) == sum(_flops(new).values())
        return "FLOPs in another precision" if same else "fewer FLOPs"
    if new.structure.parameters < old.structure.parameters:
        return "fewer parameters"
    if new.structure.gradient_bytes < old.structure.gradient_bytes:
        return "smaller gradients"
    return "fewer bytes to send" if _lacks(_sent(old), _sent(new)) else None


def _lacks(before: Counter[str], after: Counter[str]) -> bool:
    return any(after[name] < number for name, number in before.items())


def _flops(work: StepWork) -> Counter[str]:
    """Return the FLOPs of each dtype: the same in another precision is other work."""
    flops: Counter[str] = Counter()
    for one in work.operations:
        flops[one.dtype] += one.flops
    return flops


def _sent(work: StepWork) -> Counter[str]:
    sent: Counter[str] = Counter()
    for one in work.collectives:
        sent[f"{one.kind} {one.dtype}"] += one.bytes
    return sent
