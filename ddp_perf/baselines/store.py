"""The baseline files of accelerators: they are read strictly and written atomically."""

from __future__ import annotations

import datetime
import hashlib
import math
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.baselines.work import WorkStore
from ddp_perf.baselines.writing import check_storable, write_json, writing
from ddp_perf.core.baseline import (
    CONTROL,
    SCHEMA_VERSION,
    TYPICAL_STEP,
    Baseline,
    CaseBaseline,
    Session,
    instant,
)
from ddp_perf.core.environment import Environment
from ddp_perf.core.metric import METRICS
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError, nearest_or_all
from ddp_perf.render.units import counted
from ddp_perf.system.files import VersionedJson, file_in, replace_file

# The layout of a baseline file, in which nothing is repeated that sessions or launches share.
#
# Sessions name their environment, and each environment is there once. The commit differs from day
# to day, so it is with the session, as the name of the tree is. The figures of the launches are
# lists, one for each metric.


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
            names[id(environment)] = _environment_name(shared)
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


def _environment_name(environment: Environment) -> str:
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


# The files: ``baselines/<accelerator>.json`` contains the sessions of one accelerator, and
# ``baselines/code/<tree>.patch`` what the code of a session had beyond its commit.


_REMEDY = "restore it from version control"
_ABOUT_TO_BE_NAMED_S = 86_400.0  # between a patch and its session: another process may be there
_CLOCKS_DIFFER = datetime.timedelta(days=1)  # of machines that are set right, at the very most
_BASELINES = VersionedJson(
    is_merged=True,
    schema=FileBaseline,
    version=SCHEMA_VERSION,
    kind="a baseline file",
    error=BaselineError,
    remedy=_REMEDY,
    anew="move it away and store a session again: pytest --save-baseline",
    others={
        "suites": "the results of a session, not a baseline file; ddp-perf explain and ddp-perf"
        " report show it, ddp-perf baseline promote stores it"
    },
)


class BaselineStore:
    """The baseline files of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work = WorkStore(directory)

    def path(self, accelerator: str) -> Path:
        return file_in(self.directory, f"{accelerator}.json", BaselineError)

    def accelerators(self) -> list[str]:
        """Return the keys of the accelerators that have a file, sorted."""
        return sorted(path.stem for path in self.directory.glob("*.json"))

    def existing_path(self, accelerator: str) -> Path:
        """Return the path of a file that is there. Raises BaselineError, with the names."""
        path = self.path(accelerator)
        if not path.is_file():
            raise BaselineError(
                f"{path}: there is no such baseline"
                f"{nearest_or_all(accelerator, self.accelerators())}"
            )
        return path

    def load(self, accelerator: str) -> Baseline:
        """Return the stored baseline, or an empty one. Raises BaselineError for a broken file."""
        path = self.path(accelerator)
        stored = _BASELINES.read_if_present(path)
        if stored is None:
            units = {metric.name: metric.unit for metric in METRICS}
            units |= dict.fromkeys((CONTROL, TYPICAL_STEP), "s")
            return Baseline(accelerator=accelerator, units=units)
        _check(path, stored, accelerator)
        return from_file(stored)

    def relatives(self, accelerator: str) -> list[Baseline]:
        """Return the baselines of the other accelerators of a family, as ``v100-…``.

        The nearest name comes first. The other processors of a pool are a family; a processor of
        no pool has no relatives, because each host has its own key.
        """
        family = _family(accelerator)
        others = [key for key in self.accelerators() if _family(key) == family != "cpu"]
        others = [key for key in others if key != accelerator]
        others.sort(key=lambda key: (-_shared(key, accelerator), key))
        return [self.load(key) for key in others]

    def traces(self, accelerator: str, suite: str) -> dict[str, str]:
        """Return what the other files have of the cases of a suite, by case id.

        They are the sessions of the same tier, or the structures if no file has any session.
        Raises BaselineError for a broken file.
        """
        path = self.work.path(suite, None)
        found = dict.fromkeys(self.work.structures(suite), f"{path} has its structure")
        tier = accelerator.startswith("cpu-")
        for key in self.accelerators():
            if key != accelerator and key.startswith("cpu-") == tier:
                for case_id, case in self.load(key).cases.items():
                    sessions = counted(len(case.sessions), "session")
                    found[case_id] = f"{self.path(key)} has {sessions} of it"
        return found

    def patch_path(self, tree: str) -> Path:
        return file_in(self.directory / "code", f"{tree}.patch", BaselineError)

    def keep_patch(self, tree: str, patch: bytes) -> None:
        """Keep what the code of a session had beyond its commit, and drop what no session names.

        Raises BaselineError if it cannot be written.
        """
        path = self.patch_path(tree)
        with writing(self.directory, path):
            if path.is_file() and path.read_bytes() == patch:
                path.touch()  # it is about to be named again
                return
            path.parent.mkdir(exist_ok=True)
            replace_file(path, patch)
            self._drop_patches(kept=path)

    def _drop_patches(self, *, kept: Path) -> None:
        """Remove the patches that no baseline file names. One may be about to be named."""
        named = "".join(path.read_text("utf-8") for path in self.directory.glob("*.json"))
        latest = time.time() - _ABOUT_TO_BE_NAMED_S
        for path in kept.parent.glob("*.patch"):
            if path != kept and path.stem not in named and path.stat().st_mtime < latest:
                path.unlink(missing_ok=True)

    def check_storable(self) -> None:
        """Raise BaselineError if a session could not be stored."""
        below = (self.work.path("", None), self.patch_path(""))
        for directory in (self.directory, *(path.parent for path in below)):
            check_storable(directory)

    def update(self, accelerator: str, change: Callable[[Baseline], Baseline]) -> Path:
        """Read, change and replace the file under a lock, and return its path.

        The old file stays unchanged until the new one is completely on disk.
        Raises BaselineError if the file is broken, is locked for too long, or cannot be written.
        """
        path = self.path(accelerator)
        with writing(self.directory, path):
            changed = to_file(change(self.load(accelerator)))
            _check(path, changed, accelerator)
            write_json(path, changed)
        return path


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file of any name. Raises BaselineError if it is missing or broken."""
    stored = _BASELINES.read(path)
    _check(path, stored, stored.accelerator)
    return from_file(stored)


def _family(accelerator: str) -> str:
    name, _, pool = accelerator.partition("@")
    family = name.partition("-")[0]
    return f"{family}@{pool}" if pool else family


def _shared(one: str, other: str) -> int:
    """Count the parts that the two names share."""
    return len(set(one.split("-")) & set(other.split("-")))


def _check(path: Path, stored: FileBaseline, accelerator: str) -> None:
    """Check what the types do not. Raises BaselineError, which names the file and the field."""
    if stored.accelerator != accelerator:
        raise BaselineError(
            f"{path}: accelerator is {stored.accelerator!r}; rename the file or correct the field"
        )
    for case_id, case in stored.cases.items():
        for problem in _problems(case, stored.environments):
            raise BaselineError(f"{path}: cases.{case_id}.{problem}")


def _problems(case: FileCase, environments: Container[str]) -> Iterator[str]:
    """Yield each fault of a case that the types do not exclude, with its field."""
    yield from _problems_of_figures("first", {name: (v,) for name, v in case.first.items()})
    yield from _problems_of_dates("sessions", [session.date for session in case.sessions])
    yield from _problems_of_dates("log", [entry.date for entry in case.log])
    for i, session in enumerate(case.sessions):
        where = f"sessions[{i}]"
        if session.environment not in environments:
            unknown = f"environments has no {session.environment!r}"
            yield f"{where}.environment: {unknown}; {_REMEDY}"
        for name, by_launch in (("launches", session.launches), ("terms", session.terms)):
            if len({len(values) for values in by_launch.values()}) > 1:
                yield f"{where}.{name}: the lists differ in length; {_REMEDY}"
        yield from _problems_of_figures(f"{where}.launches", session.launches)


def _problems_of_dates(where: str, dates: Sequence[str]) -> Iterator[str]:
    """Yield the first fault of dates, which are in order and not of the future.

    All later sessions would count as one with a session of the future, and change no level.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    before = datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)
    for i, date in enumerate(dates):
        try:
            begun = instant(date)
        except ValueError:
            yield f"{where}[{i}].date: {date!r} is not an ISO 8601 date; {_REMEDY}"
            return
        if begun > now + _CLOCKS_DIFFER:
            clock = f"this machine's clock ({now.isoformat(timespec='seconds')})"
            fault = f"{date} is after {clock}: set the clock; if it is right, correct that date"
            yield f"{where}[{i}].date: {fault}"
            return
        if begun < before:
            fault = f"{date} follows {dates[i - 1]}: put them in the order of their dates"
            yield f"{where}[{i}].date: {fault}, as after a merge by hand"
            return
        before = begun


def _problems_of_figures(where: str, figures: Columns) -> Iterator[str]:
    for name, values in figures.items():
        for value in values:
            if value is not None and not 0 < value < math.inf:
                fault = f"{value} is no measured figure; the file is neither used nor changed"
                yield f"{where}.{name}: {fault}"


def baseline_schema() -> dict[str, Any]:
    """Return the JSON Schema of a baseline file."""
    return msgspec.json.schema(FileBaseline)
