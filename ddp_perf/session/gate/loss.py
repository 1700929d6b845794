"""The loss gate: training that is faster because it computes something else, or wrongly, is red.

It compares the mean loss of the ranks in steps that are counted from the initial parameters on. It
takes no part of the error rate: what rounding may change is measured, and far below a mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import UNSET

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchResult, why_missing
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.render.units import counted

UNSEEDED = (
    "seed what is random in the workload (a generator of its own for each batch), or set"
    " tolerances: {loss: null}"
)

_MEND = "mend it, or set tolerances: {loss: null} in the suite file"

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
