"""The difference of a case from its baseline in plain words: ``24 % slower (not yet proven)``."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import LOSS, STEP_TIME, STRUCTURE, metric_title
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import rounded_percent
from ddp_perf.session.result import SuiteResult

_PROVEN = (Outcome.REGRESSION, Outcome.IMPROVEMENT)
_NOT_PROVEN = (Outcome.SUSPECT, Outcome.UNDECIDED)


def in_words(result: SuiteResult, case_id: str) -> str | None:
    """Return how the case differs from its baseline, or None if no verdict states a difference.

    A metric other than these is named only if it is a REGRESSION.
    """
    found = {one.metric: one for one in result.findings if one.case_id == case_id}
    step, structure, loss = (found.pop(name, None) for name in (STEP_TIME.name, STRUCTURE, LOSS))
    parts = [
        *(_of_step(step) if step is not None else ()),
        *(_of_structure(structure) if structure is not None else ()),
        *(["another loss"] if loss is not None and _is_red(loss) else ()),
        *(
            f"{metric_title(name)} {_change(one.verdict.ratio, 'more', 'less')}"
            for name, one in found.items()
            if _is_red(one) and one.target is None and one.verdict.ratio is not None
        ),
    ]
    return ", ".join(parts) or None


def _is_red(finding: Finding) -> bool:
    return finding.verdict.outcome is Outcome.REGRESSION


def _of_step(finding: Finding) -> Iterator[str]:
    verdict = finding.verdict
    if verdict.ratio is None or finding.disturbance is not None:
        return
    change = _change(verdict.ratio, "slower", "faster")
    if verdict.outcome in _PROVEN:
        yield change
    elif verdict.outcome in _NOT_PROVEN:
        yield f"{change} (not yet proven)"


def _of_structure(finding: Finding) -> Iterator[str]:
    """Yield the change of the FLOPs of a step, or else that its structure is another one."""
    before, now = finding.flops or (0, 0)
    if before and now != before:
        yield f"{_change(now / before, 'more', 'fewer')} FLOPs"
    elif _is_red(finding):
        yield "another structure of the step"


def _change(ratio: float, more: str, less: str) -> str:
    return f"{rounded_percent(abs(ratio - 1))} {more if ratio >= 1 else less}"
