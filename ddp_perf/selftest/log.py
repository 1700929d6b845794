"""``launches.jsonl``: each launch of a self-test as it finishes, so that a later run goes on."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from ddp_perf.core.case import Case, Scalar
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.errors import ResultsError
from ddp_perf.system.versioned_json import VersionedJson

SCHEMA_VERSION = 1
_REMEDY = "give another --output, or delete the file"
Conditions = dict[str, Scalar | None]


class TimedLaunch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch in figures."""

    percent: int  # by which its ranks were slowed; 0: not at all
    started: str  # ISO 8601, UTC
    wall_s: float  # start and end of its ranks included
    summary: LaunchSummary


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: under which conditions all launches of the file were measured."""

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
    """All that must be the same for launches to be of one self-test."""
    return {
        "case": case.id,
        **case.work(),
        "steps": case.schedule.steps,
        "warmup": case.schedule.warmup,
        **environment.conditions(),
    }


class SelftestLog:
    """The file, open for further launches: a header, then one line a launch."""

    def __init__(self, path: Path, conditions: Conditions) -> None:
        """Read what is there, or begin the file.

        A last line without its end, from a process that was killed, is dropped. Raises
        ResultsError for any other broken line, other conditions, or a path of no use.
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
            self._take_up(conditions)
        except BaseException:
            self.close()
            raise

    def append(self, launch: TimedLaunch) -> None:
        """Raises ResultsError where it cannot be written; what was there stays."""
        self._write(msgspec.json.encode(launch))
        self.launches.append(launch)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: what failed was said at the write
            self._file.close()

    def _take_up(self, conditions: Conditions) -> None:
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
        changed = [
            f"{name} {before.get(name)} → {conditions.get(name)}"
            for name in before | conditions
            if before.get(name) != conditions.get(name)
        ]
        if changed:
            raise ResultsError(
                f"{self.path}: measured under other conditions: {', '.join(changed)}; {_REMEDY}"
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
                f"{self.path}: cannot be written: {error.strerror}; the launches before are kept"
            ) from None
