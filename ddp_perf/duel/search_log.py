"""The log of a search, from which a later run goes on: what was measured, entry by entry."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ddp_perf.core.case import Scalar
from ddp_perf.errors import ResultsError
from ddp_perf.render.units import field_changes
from ddp_perf.system.files import VersionedJson

SCHEMA_VERSION = 1
Conditions = dict[str, Scalar | None]
EntryT = TypeVar("EntryT", bound=msgspec.Struct)


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: what all entries of the file have in common."""

    schema_version: int = SCHEMA_VERSION
    question: dict[str, str]  # what is compared, and the case
    conditions: Conditions


class SearchLog(Generic[EntryT]):
    """The file of one question under one set of conditions, open for further entries.

    Other conditions have another file, so nothing is ever lost. ``changed`` are the conditions
    that differ from those of the last file of the same question; empty: there is none.
    """

    def __init__(
        self, entry: type[EntryT], directory: Path, question: dict[str, str], conditions: Conditions
    ) -> None:
        """Read the entries, or begin the file. Raises ResultsError."""
        self._decoder = msgspec.json.Decoder(entry)
        about, here = (_digest(each) for each in (question, conditions))
        self.path = directory / f"{about}-{here}.jsonl"
        self.entries: list[EntryT] = []
        self.earlier = 0  # of the entries: those that the file had when it was opened
        self.changed: list[str] = []
        if not self.path.exists():
            self.changed = self._other_conditions(about, conditions)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
        except OSError as error:
            raise ResultsError(f"{self.path}: cannot be written: {error.strerror}") from None
        try:
            self._load(_Header(question=question, conditions=conditions))
        except BaseException:
            self.close()
            raise

    def append(self, entry: EntryT) -> None:
        """Append an entry, and flush it to disk. Raises ResultsError if it cannot be written."""
        self._write(msgspec.json.encode(entry))
        self.entries.append(entry)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the error was raised at the write
            self._file.close()

    def _other_conditions(self, about: str, conditions: Conditions) -> list[str]:
        """Return what has changed since the newest file of the same question."""
        others = sorted(
            self.path.parent.glob(f"{about}-*.jsonl"), key=lambda path: path.stat().st_mtime
        )
        for path in others[:-2:-1]:
            # A file that another version wrote, or a full disk left empty, is not needed here.
            with contextlib.suppress(OSError, ResultsError), path.open("rb") as file:
                header = _header_file(path).decode(file.readline(), f"{path}: line 1")
                return field_changes(header.conditions, conditions)
        return []

    def _load(self, header: _Header) -> None:
        """Read the file. An incomplete last line, from a process that was killed, is dropped."""
        self._file.seek(0)
        data = self._file.read()
        whole, _, torn = data.rpartition(b"\n")
        if not whole:  # new, or killed at the first line
            self._file.truncate(0)
            self._write(msgspec.json.encode(header))
            return
        first, *rest = whole.split(b"\n")
        _header_file(self.path).decode(first, f"{self.path}: line 1")
        self.entries = [self._decoded(line, number) for number, line in enumerate(rest, start=2)]
        self.earlier = len(self.entries)
        self._file.truncate(len(data) - len(torn))

    def _decoded(self, line: bytes, number: int) -> EntryT:
        try:
            return self._decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ResultsError(
                f"{self.path}: line {number}: {error}; delete the file to begin anew"
            ) from None

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ResultsError(
                f"{self.path}: cannot be written: {error.strerror}; what it has is kept"
            ) from None


def _header_file(path: Path) -> VersionedJson[_Header]:
    return VersionedJson(
        schema=_Header,
        version=SCHEMA_VERSION,
        kind="a log of ddp-perf bisect",
        error=ResultsError,
        remedy=f"delete {path.name} to begin anew",
    )


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]
