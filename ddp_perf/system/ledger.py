"""Ledgers: append-only logs of a measurement, from which a later run goes on."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ddp_perf.core.case import Scalar
from ddp_perf.errors import ResultsError
from ddp_perf.render.units import field_changes
from ddp_perf.system.files import UNREADABLE, VersionedJson

SCHEMA_VERSION = 2
Conditions = dict[str, Scalar | None]
EntryT = TypeVar("EntryT", bound=msgspec.Struct)


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: what all entries of the file have in common."""

    schema_version: int = SCHEMA_VERSION
    question: dict[str, str] = {}  # of a file of `Ledger.of_question`
    conditions: Conditions


class Entries(Generic[EntryT]):
    """The entries of a measurement that no later run goes on with: they are in memory."""

    def __init__(self) -> None:
        self.entries: list[EntryT] = []
        self.earlier = 0

    def append(self, entry: EntryT) -> None:
        """Append an entry."""
        self.entries.append(entry)

    def discard(self) -> None:
        """Forget what a later run would go on with: it is complete, and kept elsewhere."""


class Ledger(Entries[EntryT]):
    """A file of JSON lines: a header, and then an entry in each line, open for further ones.

    An entry is on the disk when `append` returns. ``entries`` are all of them; ``earlier`` is how
    many the file had when it was opened.
    """

    def __init__(
        self,
        path: Path,
        entry: type[EntryT],
        conditions: Conditions,
        *,
        question: dict[str, str] | None = None,
        remedy: str | None = None,
    ) -> None:
        """Read the entries, or begin the file. Close it.

        An incomplete last line, from a process that was killed, is dropped. Raises ResultsError,
        with the ``remedy``, for any other broken line, for other conditions, for a path that cannot
        be written, or that another process has open.
        """
        super().__init__()
        self.path = path
        self.changed: list[str] = []
        self._remedy = remedy or "delete the file to begin anew"
        self._decoder = msgspec.json.Decoder(entry)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            what = "; ".join(filter(None, [f"cannot be written: {error.strerror}", remedy]))
            raise ResultsError(f"{path}: {what}") from None
        try:
            self._lock()
            self._load(_Header(question=question or {}, conditions=conditions))
        except BaseException:
            self.close()
            raise
        self.earlier = len(self.entries)

    @classmethod
    def of_question(
        cls,
        directory: Path,
        entry: type[EntryT],
        question: dict[str, str],
        conditions: Conditions,
    ) -> Ledger[EntryT]:
        """Open the file of a question under these conditions. Raises ResultsError.

        Other conditions have another file, so nothing is ever lost. ``changed`` are those that
        differ from the last file of the same question; empty: there is none.
        """
        about, here = (_digest((SCHEMA_VERSION, each)) for each in (question, conditions))
        path = directory / f"{about}-{here}.jsonl"
        changed = [] if path.exists() else _changed(directory.glob(f"{about}-*.jsonl"), conditions)
        ledger = cls(path, entry, conditions, question=question)
        ledger.changed = changed
        return ledger

    def append(self, entry: EntryT) -> None:
        """Append an entry, and flush it to disk. Raises ResultsError if it cannot be written."""
        self._write(msgspec.json.encode(entry))
        super().append(entry)

    def discard(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the error was raised at the write
            self._file.close()

    def _lock(self) -> None:
        """Keep other processes from the file until it is closed: one would cut what another wrote.

        Raises ResultsError if another process has it.
        """
        try:
            import fcntl  # Windows has none
        except ImportError:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsError(
                f"{self.path}: another run of the same measurement writes it; wait until it ends"
            ) from None
        except OSError:
            return  # a disk without locks

    def _load(self, header: _Header) -> None:
        self._file.seek(0)
        data = self._file.read()
        whole, _, torn = data.rpartition(b"\n")
        line = msgspec.json.encode(header)
        if line.startswith(data):  # new, or killed at the first line
            self._file.truncate(0)
            self._write(line)
            return
        first, *rest = whole.split(b"\n")
        before = _format(self._remedy).decode(first, f"{self.path}: line 1").conditions
        if changed := field_changes(before, header.conditions, before | header.conditions):
            raise ResultsError(
                f"{self.path}: it was measured under other conditions: {', '.join(changed)};"
                f" {self._remedy}"
            )
        self.entries = [self._decoded(line, number) for number, line in enumerate(rest, start=2)]
        self._file.truncate(len(data) - len(torn))

    def _decoded(self, line: bytes, number: int) -> EntryT:
        try:
            return self._decoder.decode(line)
        except UNREADABLE as error:
            raise ResultsError(f"{self.path}: line {number}: {error}; {self._remedy}") from None

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ResultsError(
                f"{self.path}: cannot be written: {error.strerror}; what it has is kept"
            ) from None


def _changed(paths: Iterable[Path], conditions: Conditions) -> list[str]:
    """Return what has changed since the newest of these files.

    A file that another version wrote, or a full disk left empty, is not needed here.
    """
    for path in sorted(paths, key=lambda path: path.stat().st_mtime)[:-2:-1]:
        with contextlib.suppress(OSError, ResultsError), path.open("rb") as file:
            header = _format("").decode(file.readline(), f"{path}: line 1")
            return field_changes(header.conditions, conditions)
    return []


def _format(remedy: str) -> VersionedJson[_Header]:
    return VersionedJson(
        schema=_Header, version=SCHEMA_VERSION, kind="a log", error=ResultsError, remedy=remedy
    )


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]
