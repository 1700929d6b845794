"""The difference between two versions of a baseline file, for a reviewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import msgspec

from ddp_perf.core.baseline import Acknowledgement, Baseline, CaseBaseline, Rebaseline
from ddp_perf.core.case import Scalar
from ddp_perf.core.launch import Structure
from ddp_perf.core.metric import METRICS
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.render.units import field_changes
from ddp_perf.session.gate.comparability import changes
from ddp_perf.session.gate.exact import structure_changes


class LevelChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one metric's level, the median over the reference sessions."""

    metric: str
    old: float
    new: float

    @property
    def ratio(self) -> float:
        return self.new / self.old


Kind = Literal["added", "removed", "changed"]


class CaseDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one case that differs between the files."""

    case_id: str
    kind: Kind
    work: tuple[str, ...] = ()  # as "model.hidden_dim 4096 → 2048": the case does other work
    sessions: tuple[int, int] = (0, 0)  # number of sessions before and after
    levels: tuple[LevelChange, ...] = ()
    structure: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()  # the source of its figures, and the first figures ever saved
    environment: tuple[str, ...] = ()  # the newest sessions compared
    log: tuple[Rebaseline, ...] = ()  # new entries


class TableDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one published table."""

    name: str
    document: str
    kind: Kind
    fields: tuple[str, ...] = ()  # of the table itself, as "tolerance 0.05 → 0.1"
    rows: tuple[str, ...] = ()  # each with its configuration


class BaselineDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The difference between two baseline files."""

    accelerators: tuple[str, str]
    cases: tuple[CaseDiff, ...]
    published: tuple[TableDiff, ...]
    acknowledged: tuple[Acknowledgement, ...]  # new ones
    withdrawn: tuple[Acknowledgement, ...]

    @property
    def differs(self) -> bool:
        """True if anything but the accelerator's name differs."""
        return bool(self.cases or self.published or self.acknowledged or self.withdrawn)


def diff_baselines(old: Baseline, new: Baseline) -> BaselineDiff:
    """Compare two baselines case by case, in the order of the case ids."""
    return BaselineDiff(
        accelerators=(old.accelerator, new.accelerator),
        cases=tuple(_cases(old, new)),
        published=tuple(_published(old, new)),
        acknowledged=tuple(a for a in new.acknowledged if a not in old.acknowledged),
        withdrawn=tuple(a for a in old.acknowledged if a not in new.acknowledged),
    )


def _cases(old: Baseline, new: Baseline) -> Iterator[CaseDiff]:
    for case_id in sorted(old.cases.keys() | new.cases.keys()):
        before, after = old.cases.get(case_id), new.cases.get(case_id)
        if before is None or after is None:
            kind: Kind = "added" if before is None else "removed"
            sessions = (len(before.sessions) if before else 0, len(after.sessions) if after else 0)
            yield CaseDiff(case_id=case_id, kind=kind, sessions=sessions)
        elif before != after:
            yield _changed(case_id, before, after)


def _changed(case_id: str, before: CaseBaseline, after: CaseBaseline) -> CaseDiff:
    return CaseDiff(
        case_id=case_id,
        kind="changed",
        work=tuple(field_changes(before.work, after.work)),
        sessions=(len(before.sessions), len(after.sessions)),
        levels=tuple(_levels(before, after)),
        structure=tuple(_structure(before.structure, after.structure)),
        fields=tuple(field_changes(_fields(before), _fields(after))),
        environment=tuple(_environment(before, after)),
        log=tuple(entry for entry in after.log if entry not in before.log),
    )


def _fields(case: CaseBaseline) -> dict[str, Scalar]:
    first = {f"first.{metric}": value for metric, value in case.first.items()}
    stated = {"document": case.document, "flops": case.flops}
    known = {name: value for name, value in stated.items() if value is not None}
    losses = {f"loss of step {step}": value for step, value in case.losses.items()}
    return {"source": case.source, **known, **first, **losses}


def _levels(before: CaseBaseline, after: CaseBaseline) -> Iterator[LevelChange]:
    for metric in METRICS:
        old, new = before.level(metric.name), after.level(metric.name)
        if old is not None and new is not None and old != new:
            yield LevelChange(metric=metric.name, old=old, new=new)


def _structure(before: Structure | None, after: Structure | None) -> Iterator[str]:
    if before is not None and after is not None:
        yield from structure_changes(before, after)
    elif before != after:
        yield "structure added" if before is None else "structure removed"


def _environment(before: CaseBaseline, after: CaseBaseline) -> list[str]:
    if not before.sessions or not after.sessions:
        return []
    return changes(before.sessions[-1].environment, after.sessions[-1].environment)


def _published(old: Baseline, new: Baseline) -> Iterator[TableDiff]:
    """Compare the published tables, by name and document."""
    before, after = (
        {(table.name, table.document): table for table in baseline.published}
        for baseline in (old, new)
    )
    for name, document in sorted(before.keys() | after.keys()):
        one, other = before.get((name, document)), after.get((name, document))
        if one is None or other is None:
            yield TableDiff(name=name, document=document, kind="added" if other else "removed")
        elif one != other:
            yield TableDiff(
                name=name,
                document=document,
                kind="changed",
                fields=tuple(field_changes(_stated(one), _stated(other))),
                rows=tuple(_rows(one, other)),
            )


def _stated(table: PublishedTable) -> dict[str, Scalar]:
    """Return all fields of a table but its rows."""
    stated = msgspec.to_builtins(table)
    del stated["rows"]
    work = {f"work.{name}": value for name, value in stated.pop("work", {}).items()}
    return {**stated, **work}


def _rows(before: PublishedTable, after: PublishedTable) -> Iterator[str]:
    old, new = _by_configuration(before), _by_configuration(after)
    for key in dict.fromkeys([*old, *new]):
        configuration = key[0]
        if key not in new:
            yield f"{configuration}: removed"
        elif key not in old:
            yield f"{configuration}: added"
        elif old[key] != new[key]:
            changed = field_changes(*map(msgspec.to_builtins, (old[key], new[key])))
            yield f"{configuration}: {', '.join(changed)}"


def _by_configuration(table: PublishedTable) -> dict[tuple[str, int], PublishedRow]:
    """Return the rows by configuration; rows of the same configuration are numbered in order."""
    rows = {}
    seen: Counter[str] = Counter()
    for row in table.rows:
        configuration = " ".join(filter(None, (row.case, row.strategy, row.label)))
        rows[configuration, seen[configuration]] = row
        seen[configuration] += 1
    return rows
