"""The stored work of the cases of a suite, and how counted cases are merged into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from ddp_perf.baselines.save import SaveMode
from ddp_perf.core.case import Case, Scalar
from ddp_perf.core.work import (
    CallCount,
    CollectiveCount,
    GraphBreak,
    KeptMemory,
    OperationCount,
    StepWork,
)
from ddp_perf.work.changes import work_changes
from ddp_perf.work.values import CountedCase

_Count = TypeVar("_Count", CallCount, CollectiveCount, GraphBreak, KeptMemory, OperationCount)


class StoredWork(msgspec.Struct, frozen=True, kw_only=True):
    """The stored work of one case."""

    options: dict[str, Scalar]  # the fingerprint
    step: StepWork


class AcceptedWork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accepted change of stored work, by --save-baseline=accept."""

    date: str
    commit: str | None
    reason: str
    cases: tuple[str, ...]


class WorkBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """The stored work of a suite under one minor version of torch, by case id."""

    suite: str
    torch: str  # "2.13"
    cases: dict[str, StoredWork] = {}
    accepted: tuple[AcceptedWork, ...] = ()  # oldest first

    def of(self, case: Case) -> StoredWork | None:
        """Return the stored work of a case, or None.

        A case with another id and the same options does the same work. A case with this id whose
        options changed is compared all the same.
        """
        own = self.cases.get(case.id)
        options = case.work()
        if own is not None and own.options == options:
            return own
        same = (stored for stored in self.cases.values() if stored.options == options)
        return next(same, own)


def torch_minor(version: str) -> str:
    """Return the minor version of torch, by which work is stored: ``2.13`` of ``2.13.0+cpu``."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def merge_work(
    baseline: WorkBaseline,
    counted: Sequence[CountedCase],
    *,
    mode: SaveMode,
    date: str,
    commit: str | None = None,
    reason: str | None = None,
) -> WorkBaseline:
    """Return the baseline with the counted cases that ``mode`` stores.

    ``missing`` stores what is not stored yet. ``append`` does the same: counts have no sessions.
    ``accept`` also replaces what differs, and logs the cases whose counts or options changed: all
    that are accepted for one reason at one commit in one entry.
    """
    cases = dict(baseline.cases)
    changed = []
    for one in counted:
        if one.work is None:
            continue
        new = StoredWork(options=one.case.work(), step=canonical(one.work))
        old = baseline.of(one.case)
        if old is None:
            cases[one.case.id] = new
        elif mode == "accept" and old != new:
            cases[one.case.id] = new
            if old.options != new.options or work_changes(old.step, new.step):
                changed.append(one.case.id)
    log = baseline.accepted
    if changed:
        if log and (log[-1].commit, log[-1].reason) == (commit, reason):
            changed += log[-1].cases
            log = log[:-1]
        cases_of = tuple(sorted(set(changed)))
        log += (AcceptedWork(date=date, commit=commit, reason=reason or "", cases=cases_of),)
    return msgspec.structs.replace(baseline, cases=cases, accepted=log)


def canonical(work: StepWork) -> StepWork:
    """Return the work as it is stored: only sites that are used, each once, and sorted.

    What is only reported is left out: it is not exact.
    """
    used = {
        one.site
        for group in (
            work.operations,
            work.collectives,
            work.kept,
            work.held,
            work.calls,
            work.callers,
        )
        for one in group
    }
    compilation = work.compilation
    breaks = () if compilation is None else (*compilation.breaks, *compilation.recompilations)
    used |= {one.site for one in breaks}
    sites = tuple(sorted({work.sites[index] for index in used}))
    numbers = {site: number for number, site in enumerate(sites)}
    index = {old: numbers[work.sites[old]] for old in used}
    if compilation is not None:
        compilation = msgspec.structs.replace(
            compilation,
            breaks=_moved(compilation.breaks, index),
            recompilations=_moved(compilation.recompilations, index),
        )
    return msgspec.structs.replace(
        work,
        sites=sites,
        operations=tuple(sorted(_moved(work.operations, index))),
        collectives=_moved(work.collectives, index),
        kept=tuple(sorted(_moved(work.kept, index), key=lambda one: (one.site, one.bytes))),
        held=tuple(sorted(_moved(work.held, index), key=lambda one: (one.site, one.bytes))),
        calls=tuple(sorted(_moved(work.calls, index))),
        callers=tuple(sorted(_moved(work.callers, index))),
        autograd_nodes=dict(sorted(work.autograd_nodes.items())),
        compilation=compilation,
        reported={},
    )


def _moved(counts: Iterable[_Count], index: Mapping[int, int]) -> tuple[_Count, ...]:
    """Return the counts with the new indexes of their sites."""
    return tuple(msgspec.structs.replace(one, site=index[one.site]) for one in counts)
