"""What a reviewer of two versions of a baseline file needs to know."""

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
from ddp_perf.session.gate.structure import structure_changes


class LevelChange(msgspec.Struct, frozen=True, kw_only=True):
    """Of one metric: median over the sessions that set the level."""

    metric: str
    old: float
    new: float

    @property
    def ratio(self) -> float:
        return self.new / self.old


Kind = Literal["added", "removed", "changed"]


class CaseDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What changed of one case; only of those where something did."""

    case_id: str
    kind: Kind
    work: tuple[str, ...] = ()  # as "model.hidden_dim 4096 → 2048": other work, not a slower one
    sessions: tuple[int, int] = (0, 0)  # how many there were, and are
    levels: tuple[LevelChange, ...] = ()
    structure: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()  # where its figures come from, and what drift is told from
    environment: tuple[str, ...] = ()  # newest session against newest session
    log: tuple[Rebaseline, ...] = ()  # new entries


class TableDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What changed of one published table."""

    name: str
    document: str
    kind: Kind
    fields: tuple[str, ...] = ()  # of the table itself, as "tolerance 0.05 → 0.1"
    rows: tuple[str, ...] = ()  # each with what it is of


class BaselineDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Two files."""

    accelerators: tuple[str, str]
    cases: tuple[CaseDiff, ...]
    published: tuple[TableDiff, ...]
    acknowledged: tuple[Acknowledgement, ...]  # new ones
    withdrawn: tuple[Acknowledgement, ...]

    @property
    def differs(self) -> bool:
        """Whether the files say something else of the same machine."""
        return bool(self.cases or self.published or self.acknowledged or self.withdrawn)


def diff_baselines(old: Baseline, new: Baseline) -> BaselineDiff:
    """Case by case, in the order of their ids."""
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
    return {"source": case.source, **known, **first}


def _levels(before: CaseBaseline, after: CaseBaseline) -> Iterator[LevelChange]:
    for metric in METRICS:
        old, new = before.level(metric.name), after.level(metric.name)
        if old is not None and new is not None and old != new:
            yield LevelChange(metric=metric.name, old=old, new=new)


def _structure(before: Structure | None, after: Structure | None) -> Iterator[str]:
    if before is None or after is None:
        if before != after:
            yield "structure added" if before is None else "structure removed"
        return
    yield from structure_changes(before, after)


def _environment(before: CaseBaseline, after: CaseBaseline) -> list[str]:
    if not before.sessions or not after.sessions:
        return []
    return changes(before.sessions[-1].environment, after.sessions[-1].environment)


def _published(old: Baseline, new: Baseline) -> Iterator[TableDiff]:
    """Table by table, by name and document."""
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
    """Of a table, all but its rows."""
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
    """By what a row is of; rows of the same are told apart by their order."""
    rows = {}
    seen: Counter[str] = Counter()
    for row in table.rows:
        configuration = " ".join(filter(None, (row.case, row.strategy, row.label)))
        rows[configuration, seen[configuration]] = row
        seen[configuration] += 1
    return rows
