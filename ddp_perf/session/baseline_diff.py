"""What a reviewer of two versions of a baseline file needs to know."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Literal

import msgspec

from ddp_perf.baselines.save import work_differences
from ddp_perf.core.baseline import (
    REFERENCE_SESSIONS,
    Acknowledgement,
    Baseline,
    CaseBaseline,
    Rebaseline,
)
from ddp_perf.core.metric import METRICS
from ddp_perf.core.result import Structure
from ddp_perf.session.comparability import changes


class LevelChange(msgspec.Struct, frozen=True, kw_only=True):
    """Of one metric: median over the sessions that set the level."""

    metric: str
    old: float
    new: float

    @property
    def ratio(self) -> float:
        return self.new / self.old


class CaseDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What changed of one case; only of those where something did."""

    case_id: str
    kind: Literal["added", "removed", "changed"]
    work: tuple[str, ...] = ()  # as "model.hidden_dim 4096 → 2048": other work, not a slower one
    sessions: tuple[int, int] = (0, 0)  # how many there were, and are
    levels: tuple[LevelChange, ...] = ()
    structure: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()  # newest session against newest session
    log: tuple[Rebaseline, ...] = ()  # new entries


class BaselineDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Two files."""

    accelerators: tuple[str, str]
    cases: tuple[CaseDiff, ...]
    acknowledged: tuple[Acknowledgement, ...]  # new ones
    withdrawn: tuple[Acknowledgement, ...]


def diff_baselines(old: Baseline, new: Baseline) -> BaselineDiff:
    """Case by case, in the order of their ids."""
    return BaselineDiff(
        accelerators=(old.accelerator, new.accelerator),
        cases=tuple(_cases(old, new)),
        acknowledged=tuple(a for a in new.acknowledged if a not in old.acknowledged),
        withdrawn=tuple(a for a in old.acknowledged if a not in new.acknowledged),
    )


def level_of(case: CaseBaseline, metric: str) -> float | None:
    """Median of what the reference sessions hold; None where they lack the metric."""
    nights = [session.values(metric) for session in case.sessions[:REFERENCE_SESSIONS]]
    medians = [statistics.median(values) for values in nights if values]
    return statistics.median(medians) if medians else None


def _cases(old: Baseline, new: Baseline) -> Iterator[CaseDiff]:
    for case_id in sorted(old.cases.keys() | new.cases.keys()):
        before, after = old.cases.get(case_id), new.cases.get(case_id)
        if before is None and after is not None:
            sessions = (0, len(after.sessions))
            yield CaseDiff(case_id=case_id, kind="added", sessions=sessions)
        elif after is None and before is not None:
            sessions = (len(before.sessions), 0)
            yield CaseDiff(case_id=case_id, kind="removed", sessions=sessions)
        elif before is not None and after is not None and before != after:
            yield _changed(case_id, before, after)


def _changed(case_id: str, before: CaseBaseline, after: CaseBaseline) -> CaseDiff:
    return CaseDiff(
        case_id=case_id,
        kind="changed",
        work=tuple(work_differences(before.work, after.work)),
        sessions=(len(before.sessions), len(after.sessions)),
        levels=tuple(_levels(before, after)),
        structure=tuple(_structure(before.structure, after.structure)),
        environment=tuple(_environment(before, after)),
        log=tuple(entry for entry in after.log if entry not in before.log),
    )


def _levels(before: CaseBaseline, after: CaseBaseline) -> Iterator[LevelChange]:
    for metric in METRICS:
        old, new = level_of(before, metric.name), level_of(after, metric.name)
        if old is not None and new is not None and old != new:
            yield LevelChange(metric=metric.name, old=old, new=new)


def _structure(before: Structure | None, after: Structure | None) -> Iterator[str]:
    if before is None or after is None:
        if before != after:
            yield "structure added" if before is None else "structure removed"
        return
    for name in Structure.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            counted = isinstance(old, tuple) and len(old) != len(new)
            yield f"{name} {len(old)} → {len(new)}" if counted else f"{name} {old} → {new}"


def _environment(before: CaseBaseline, after: CaseBaseline) -> list[str]:
    if not before.sessions or not after.sessions:
        return []
    return changes(before.sessions[-1].environment, after.sessions[-1].environment)
