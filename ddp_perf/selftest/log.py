"""``launches.jsonl``: the launches of a self-test, written one by one for a later run."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from ddp_perf.core.case import Case, Scalar
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.errors import ResultsError
from ddp_perf.render.units import field_changes
from ddp_perf.system.versioned_json import VersionedJson

SCHEMA_VERSION = 1
_REMEDY = "give another --output, or delete the file"
Conditions = dict[str, Scalar | None]


class TimedLaunch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of one launch."""

    percent: int  # injected slow-down; 0: none
    started: str  # ISO 8601, UTC
    wall_s: float  # including the start and the end of its ranks
    summary: LaunchSummary


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: the conditions that all launches of the file have in common."""

    schema_version: int = SCHEMA_VERSION
    conditions: Conditions


_HEADER = VersionedJson(
    schema=_Header,
    version=SCHEMA_VERSION,
    kind="a self-test's log",
    error=ResultsError,
    remedy=_REMEDY,
)
_LAUNCH = msgspec.json.Decoder(TimedLaunch)


def conditions_of(case: Case, environment: Environment) -> Conditions:
    """Return everything that all launches of one self-test must have in common."""
    return {
        "case": case.id,
        **case.work(),
        "steps": case.schedule.steps,
        "warmup": case.schedule.warmup,
        **environment.conditions(),
    }


class SelftestLog:
    """The file, open for further launches: a header, then one line per launch."""

    def __init__(self, path: Path, conditions: Conditions) -> None:
        """Read the launches of the file, or begin it.

        An incomplete last line, from a process that was killed, is dropped. Raises ResultsError
        for any other broken line, for other conditions, or for a path that cannot be written.
        """
        self.path = path
        self.launches: list[TimedLaunch] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise ResultsError(
                f"{path}: cannot be written: {error.strerror}; give another --output"
            ) from None
        try:
            self._load(conditions)
        except BaseException:
            self.close()
            raise

    def append(self, launch: TimedLaunch) -> None:
        """Append a launch. Raises ResultsError if it cannot be written; the others are kept."""
        self._write(msgspec.json.encode(launch))
        self.launches.append(launch)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the error was raised at the write
            self._file.close()

    def _load(self, conditions: Conditions) -> None:
        self._file.seek(0)
        data = self._file.read()
        whole, _, torn = data.rpartition(b"\n")
        header = msgspec.json.encode(_Header(conditions=conditions))
        if header.startswith(data):  # new, or killed at the first line
            self._file.truncate(0)
            self._write(header)
            return
        first, *rest = whole.split(b"\n")
        self._check(first, conditions)
        self.launches = [self._decoded(line, number) for number, line in enumerate(rest, start=2)]
        self._file.truncate(len(data) - len(torn))

    def _check(self, line: bytes, conditions: Conditions) -> None:
        before = _HEADER.decode(line, f"{self.path}: line 1").conditions
        changed = field_changes(before, conditions, before | conditions)
        if changed:
            raise ResultsError(
                f"{self.path}: it was measured under other conditions: {', '.join(changed)};"
                f" {_REMEDY}"
            )

    def _decoded(self, line: bytes, number: int) -> TimedLaunch:
        try:
            return _LAUNCH.decode(line)
        except msgspec.DecodeError as error:
            raise ResultsError(f"{self.path}: line {number}: {error}; {_REMEDY}") from None

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            raise ResultsError(
                f"{self.path}: cannot be written: {error.strerror}; earlier launches are kept"
            ) from None
