"""The layout of a baseline file, in which nothing is repeated that sessions or launches share.

Sessions name their environment, and each environment is there once. The commit differs from day to
day, so it is with the session, as the name of the tree is. The figures of the launches are lists,
one for each metric.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ddp_perf.core.baseline import SCHEMA_VERSION, Baseline, CaseBaseline
from ddp_perf.core.environment import Environment
from ddp_perf.core.session import Session
from ddp_perf.core.verdict import Outcome

Columns = dict[str, tuple[float | None, ...]]  # by name: the figure of each launch that has it


class FileSession(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A `Session` in a file."""

    date: str
    environment: str  # the name of one of the file's
    commit: str | None = None
    tree: str | None = None
    launches: Columns
    terms: Columns = {}
    overhead_s: float
    verdicts: dict[str, Outcome] = {}
    nodes: tuple[str, ...] = ()
    slow_nodes: dict[str, str] = {}


class FileCase(CaseBaseline, frozen=True, kw_only=True):
    """A `CaseBaseline` in a file."""

    sessions: tuple[FileSession, ...]  # type: ignore[assignment]


class FileBaseline(Baseline, frozen=True, kw_only=True):
    """A file of ``baselines/``: every case of one accelerator type, by id."""

    schema_version: int = SCHEMA_VERSION
    environments: dict[str, Environment] = msgspec.field(default_factory=dict)
    cases: dict[str, FileCase] = msgspec.field(default_factory=dict)  # type: ignore[assignment]


def to_file(baseline: Baseline) -> FileBaseline:
    """Return the baseline as its file has it."""
    environments: dict[str, Environment] = {}
    names: dict[int, str] = {}  # by the identity of an environment, which cases share

    def session_in_file(session: Session) -> FileSession:
        environment = session.environment
        if id(environment) not in names:
            shared = msgspec.structs.replace(environment, commit=None, tree=None)
            names[id(environment)] = environment_name(shared)
            environments[names[id(environment)]] = shared
        fields = {
            **msgspec.structs.asdict(session),
            "environment": names[id(environment)],
            "commit": environment.commit,
            "tree": environment.tree,
            "launches": columns(session.launches),
            "terms": columns(session.terms),
        }
        return FileSession(**fields)

    cases = {
        case_id: FileCase(**_with_sessions(case, session_in_file))
        for case_id, case in baseline.cases.items()
    }
    fields = {**msgspec.structs.asdict(baseline), "cases": cases, "environments": environments}
    return FileBaseline(**fields)


def from_file(stored: FileBaseline) -> Baseline:
    """Return the baseline of a file in which each session names an environment of the file."""
    environments: dict[tuple[str, str | None, str | None], Environment] = {}

    def session_of(session: FileSession) -> Session:
        fields = msgspec.structs.asdict(session)
        name, commit, tree = key = fields["environment"], fields.pop("commit"), fields.pop("tree")
        if key not in environments:
            shared = stored.environments[name]
            environments[key] = msgspec.structs.replace(shared, commit=commit, tree=tree)
        fields["environment"] = environments[key]
        fields["launches"] = _rows(session.launches)
        fields["terms"] = _rows(session.terms)
        return Session(**fields)

    cases = {
        case_id: CaseBaseline(**_with_sessions(case, session_of))
        for case_id, case in stored.cases.items()
    }
    fields = {**msgspec.structs.asdict(stored), "cases": cases}
    del fields["schema_version"], fields["environments"]
    return Baseline(**fields)


def environment_name(environment: Environment | dict[str, Any]) -> str:
    """Return a name that depends on nothing but the fields, so that it is the same every day."""
    text = msgspec.json.encode(environment, order="sorted")
    return hashlib.sha256(text).hexdigest()[:12]


def columns(rows: Sequence[Mapping[str, float]]) -> Columns:
    """Return the figures of launches by name; None where a launch lacks one."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: tuple(row.get(name) for row in rows) for name in names}


def _rows(by_name: Columns) -> tuple[dict[str, float], ...]:
    """Return the figures of each launch."""
    return tuple(
        {name: value for name, value in zip(by_name, launch, strict=True) if value is not None}
        for launch in zip(*by_name.values(), strict=True)
    )


def _with_sessions(case: CaseBaseline, change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the fields of a case, each session changed."""
    return {**msgspec.structs.asdict(case), "sessions": tuple(map(change, case.sessions))}
