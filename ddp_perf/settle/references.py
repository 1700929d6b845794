"""The stored sessions whose code may run again, and the cases that launches must decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import CaseBaseline, Session
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.duel.run import FIRST_LOOK, MARGIN
from ddp_perf.duel.touched import Project, sources_of, touched_cases
from ddp_perf.errors import DdpPerfError
from ddp_perf.render.units import change_text, field_changes
from ddp_perf.session.gate.comparability import changes
from ddp_perf.system.git import (
    CodeState,
    CodeStateError,
    changed_between,
    changed_lines,
    has_commit,
    printable,
    tree_of,
)

# The stored sessions whose code may run again, and what changed since one of them.


_SOFTWARE = ("python", "torch", "cuda", "cudnn", "nccl", "blas")


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session at the level that is in force, with its code."""

    date: str
    state: CodeState
    environment: Environment
    patch: Path  # it may be missing
    packages: str | None = None  # "torch==2.12.0": only they changed, so only they are replaced

    @property
    def label(self) -> str:
        changed = ", with changes" if self.state.patch else ""
        packages = f", with {self.packages}" if self.packages else ""
        return f"the session of {self.date[:10]} ({self.state.commit[:8]}{changed}{packages})"

    @property
    def commit(self) -> str | None:
        """The commit of its code; None where only its packages are compared."""
        return None if self.packages else self.state.commit

    def obstacle(self, root: Path) -> str | None:
        """Return why its code cannot be put together here, with the remedy, or None."""
        commit = self.state.commit
        if not has_commit(root, commit):
            return (
                f"its commit {commit[:8]} is not in this clone: fetch the whole history"
                " (in CI: fetch-depth: 0)"
            )
        if tree_of(root, commit) != self.state.tree and not self.state.patch:
            return f"it ran with changes of {commit[:8]} that were not kept in {self.patch}"
        return None


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """The changes since a reference: of the code, of the other software, and of the machine."""

    code: tuple[str, ...] | None  # None: it is unknown
    lines: tuple[str, ...] = ()  # of the files that the case reads: "model.py:12: x = y.clone()"
    software: tuple[str, ...] | None  # None: the session states no packages
    machine: tuple[str, ...]
    # Of the packages that changed: the versions of the reference, as pip requires them.
    packages: tuple[str, ...] = ()

    @property
    def are_packages(self) -> bool:
        """True if packages changed, and no file that the case reads."""
        return self.code == () and bool(self.packages)

    @property
    def is_nothing(self) -> bool:
        """True if nothing that can run again changed: the code cannot be slower."""
        return self.code == () and self.software == ()

    @property
    def texts(self) -> tuple[str, ...]:
        return (*(self.code or ()), *(self.software or ()), *self.machine)


def references(stored: CaseBaseline, store: BaselineStore) -> list[Reference]:
    """Return the sessions of the level in force that have their code, the oldest first."""
    since = max((entry.date for entry in stored.log), default="")
    at_level = (
        session
        for session in stored.sessions
        if session.date >= since
        and not any(outcome.is_slower for outcome in session.verdicts.values())
    )
    found = (reference_of(session, store) for session in at_level)
    return [one for one in found if one is not None]


def reference_of(session: Session, store: BaselineStore) -> Reference | None:
    """Return the session with its code, or None if it states none."""
    commit, tree = session.environment.commit, session.environment.tree
    if commit is None or tree is None:
        return None
    path = store.patch_path(tree)
    patch = path.read_bytes() if path.is_file() else b""
    state = CodeState(commit=commit.rstrip("+"), tree=tree, patch=patch)
    return Reference(date=session.date, state=state, environment=session.environment, patch=path)


def what_changed(
    case: Case, reference: Reference, now: CodeState | None, here: Environment, project: Project
) -> Changed:
    """Return what changed since the reference that the case can notice."""
    before = reference.environment
    known = bool(before.packages and here.packages)
    software = tuple(_software_changes(before, here)) if known else None
    names = {text.partition(" ")[0] for text in software or ()}
    machine = [
        text
        for text in changes(before, here)
        if text.partition(" ")[0] not in {*names, *_SOFTWARE} and text not in (software or ())
    ]
    edits = _edits(case, reference.state, now, project)
    return Changed(
        code=edits.reasons,
        lines=edits.lines,
        software=software,
        machine=tuple(machine),
        packages=tuple(_older_packages(before, here)) if known else (),
    )


def edits_beyond(case: Case, today: CodeState, project: Project) -> bool:
    """Return whether edits that are not committed may touch the case."""
    try:
        committed = CodeState(commit=today.commit, tree=tree_of(project.root, today.commit))
    except CodeStateError:
        return True
    return _edits(case, committed, today, project).reasons != ()


def _older_packages(before: Environment, here: Environment) -> Iterator[str]:
    """Yield the packages of the reference that have other versions here."""
    for name in sorted(before.packages.keys() & here.packages.keys()):
        if before.packages[name] != here.packages[name]:
            yield f"{name}=={before.packages[name]}"


def _software_changes(before: Environment, here: Environment) -> Sequence[str]:
    fields = field_changes(
        {name: getattr(before, name) for name in _SOFTWARE},
        {name: getattr(here, name) for name in _SOFTWARE},
        _SOFTWARE,
    )
    packages = [
        change_text(f"package {name}", before.packages.get(name), here.packages.get(name))
        for name in sorted({*before.packages, *here.packages} - {"torch"})
        if before.packages.get(name) != here.packages.get(name)
    ]
    return [*fields, *packages, *field_changes(before.variables, here.variables)]


class _Edits(NamedTuple):
    reasons: tuple[str, ...] | None = None
    lines: tuple[str, ...] = ()


def _edits(case: Case, before: CodeState, now: CodeState | None, project: Project) -> _Edits:
    """Return why changed files can touch the case, and their lines; no reasons: it is unknown."""
    if now is None or now.tree is None:
        return _Edits()
    try:
        files = changed_between(project.root, before, now)
        if not files:
            return _Edits(())
        sources = sources_of([case], project)
        reason = touched_cases(sources, files).touched.get(case.key)
        if reason is None:
            return _Edits(())
        own = {*sources[case.key].imported, sources[case.key].suite}
        read = [file for file in files if file in own]
        lines = changed_lines(project.root, before, now, read) if read else ()
    except DdpPerfError:
        return _Edits()
    return _Edits((printable(reason),), lines)


# The cases that launches must decide, and which of them fit into the time.


SERVERS_S = 15.0  # to start two servers, each of which imports torch


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A case that needs the second stage, and the sessions whose code it may be compared with."""

    case: Case
    suspicion: float
    launch_s: float
    references: tuple[Reference, ...]  # the first one is taken; the others if it does not run
    changed: Changed
    skipped: tuple[str, ...] = ()  # why older references do not run

    @property
    def first_look_s(self) -> float:
        return 2 * FIRST_LOOK * self.launch_s


def fitting(waiting: Sequence[Suspect], left_s: float) -> list[Suspect]:
    """Return the most suspicious cases of one reference that have room for a first look.

    One that has none, as its launches take long, leaves the time to those after it.
    """
    batch: list[Suspect] = []
    left_s -= SERVERS_S
    for one in waiting:
        needed_s = MARGIN * one.first_look_s
        if needed_s <= left_s and (not batch or _code(one) == _code(batch[0])):
            left_s -= needed_s
            batch.append(one)
    return batch


def _code(one: Suspect) -> tuple[str | None, str | None]:
    """Return what names the code of its reference: the tree, and the packages."""
    return one.references[0].state.tree, one.references[0].packages
