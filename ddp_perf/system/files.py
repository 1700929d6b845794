"""Files: written atomically, and read with their ``schema_version``."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import math
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from ddp_perf.errors import DdpPerfError, ResultsError

# One reader for all JSON files that state a ``schema_version``.


T = TypeVar("T")
# What msgspec raises for bytes that are no document: also bytes that are no text, halves of a
# character, and lists within lists without end.
UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
_CONFLICT = re.compile(rb"^(<{7}|>{7}) ", re.MULTILINE)


class VersionedJson(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One kind of file: the type of its contents, its version, and what its errors advise."""

    schema: type[T]
    version: int
    kind: str  # with its article: "a results file"
    error: type[DdpPerfError]
    remedy: str  # ends the messages: "write it anew with pytest --ddp-json"
    anew: str | None = None  # the remedy for a file of another version; None: the same
    # Other kinds of file that are often named instead: a field that only they have, and the kind
    # with the remedy.
    others: Mapping[str, str] = {}
    is_merged: bool = (
        False  # with version control: then a name may be there twice, which is refused
    )

    def read(self, path: Path) -> T:
        """Read a file. Raises ``error`` for a missing file, and as `decode` does."""
        found = self.read_if_present(path)
        if found is None:
            raise self.error(f"{path}: cannot be read: No such file or directory; {self.remedy}")
        return found

    def read_if_present(self, path: Path) -> T | None:
        """Read a file, or return None if there is none. Raises ``error`` as `decode` does."""
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except PermissionError:
            raise self.error(
                f"{path}: cannot be read: Permission denied; ask its owner to let you read it"
            ) from None
        except OSError as error:
            raise self.error(f"{path}: cannot be read: {error.strerror}; {self.remedy}") from None
        return self.decode(raw, str(path))

    def decode(self, raw: bytes, where: str) -> T:
        """Decode one document. ``where`` is the file, or the file and the line.

        Raises ``error``, which names the file, the field and the remedy, for a document that is
        no JSON, has another version, or has a field of another type.
        """
        with contextlib.suppress(*UNREADABLE):
            if msgspec.json.decode(raw, type=_Version).schema_version == self.version:
                document = msgspec.json.decode(raw, type=self.schema)
                if self.is_merged and (name := _name_twice(raw)) is not None:
                    raise self.error(f"{where}: has {name!r} twice; {self.remedy}")
                return document
        return self._decode_slowly(raw, where)

    def _decode_slowly(self, raw: bytes, where: str) -> T:
        """Find out what is wrong with the document."""
        try:
            # NaN is not JSON, and 1e999 is not a number. Each stays text, so that the field
            # that needs a number refuses it.
            data = json.loads(raw, parse_constant=str, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            broken = f"is cut short, or is not JSON ({error})"
            if _CONFLICT.search(raw):
                broken = "has the marks of a merge conflict"
            raise self.error(f"{where}: {broken}; {self.remedy}") from None
        for field, kind in self.others.items():
            if isinstance(data, dict) and field in data:
                raise self.error(f"{where}: this is {kind}")
        self._check_version(data, where)
        try:
            value = msgspec.convert(data, self.schema)
            msgspec.json.encode(value)  # fails at half of a character, as \ud800
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at ")
            field = place.strip("`").removeprefix("$.") or "the file"
            raise self.error(f"{where}: {field}: {message}; {self.remedy}") from None
        except UnicodeEncodeError as error:
            raise self.error(f"{where}: is no text ({error.reason}); {self.remedy}") from None
        return value

    def _check_version(self, data: Any, where: str) -> None:
        if not isinstance(data, dict) or "schema_version" not in data:
            raise self.error(
                f"{where}: schema_version: missing, so this is not {self.kind}; {self.remedy}"
            )
        found = data["schema_version"]
        if not isinstance(found, int) or isinstance(found, bool) or found != self.version:
            raise self.error(
                f"{where}: schema_version: is {found!r}, this ddp-perf reads {self.version}; use"
                f" the ddp-perf that wrote the file, or {self.anew or self.remedy}"
            )


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    """The one field that every version has."""

    schema_version: int


def _name_twice(raw: bytes) -> str | None:
    """Return a name that a table of a JSON document has twice, of which readers take one."""
    found: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        names = [name for name, _ in pairs]
        if len({*names}) < len(names):
            found.append(max(names, key=names.count))

    json.loads(raw, object_pairs_hook=note)
    return found[0] if found else None


def _finite(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


# Names that others chose.


def file_in(directory: Path, name: str, error: type[DdpPerfError]) -> Path:
    """Return the path of a file of the directory, whose name may come from anybody's results.

    Raises ``error`` if it leads out of the directory.
    """
    if Path(name).name != name or "\0" in name:
        raise error(f"{name!r} is no name of a file in {directory}; check where it comes from")
    return directory / name


# Atomic writes: a file is the old one or the new one, never a part of each.


_ABANDONED_S = 3600.0  # no write takes as long
_RANDOM = 8  # characters of a name
_ANEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)  # Windows has it


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to a new file, flush it to disk, and rename it to ``path``.

    A link stays, and the file that it leads to is replaced. Its users stay those that it had; of a
    new file they are those of the umask. Raises OSError, for example if the disk is full; then
    ``path`` is unchanged.
    """
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.{secrets.token_hex(_RANDOM // 2)}")
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    descriptor = os.open(beside, _ANEW, 0o666 if mode is None else mode)
    try:
        try:
            _write(descriptor, data)
        finally:
            os.close(descriptor)
        if mode is not None:
            with contextlib.suppress(OSError):  # a user of another group
                shutil.chown(beside, group=path.stat().st_gid)
            beside.chmod(mode)  # whatever the umask
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _remove_abandoned(path)


def destination(path: Path) -> Path:
    """Return the file that a write in progress, or one that was killed, is to replace; else itself.

    The names are those of `replace_file`.
    """
    name, _, random = path.name.rpartition(".")
    is_written = name.startswith(".") and len(random) == _RANDOM
    return path.with_name(name[1:]) if is_written and len(name) > 1 else path


def check_replaceable(path: Path) -> None:
    """Raise OSError if `replace_file` could not write the file now. Nothing is left."""
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    tempfile.TemporaryFile(dir=path.parent).close()


def _remove_abandoned(path: Path) -> None:
    """Remove what writers left of ``path`` that were killed before they renamed it."""
    latest = time.time() - _ABANDONED_S
    for beside in path.parent.glob(f".{glob.escape(path.name)}.{'?' * _RANDOM}"):
        with contextlib.suppress(OSError):  # another process removes it
            if beside.stat().st_mtime < latest:
                beside.unlink()


def write_files(directory: Path, files: Iterable[tuple[str, bytes]]) -> list[Path]:
    """Replace each file of the directory, and return their paths. Missing directories are made.

    A file is replaced as a whole, or stays as it was. Raises ResultsError, which names the file, if
    one cannot be written.
    """
    path, written = directory, list[Path]()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data)
            written.append(path)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror}") from None
    return written


def _write(descriptor: int, data: bytes) -> None:
    """Write all of ``data`` to disk.

    There is no file object: an interrupt just after its creation would leave it unclosed, which is
    a warning of Python, and fails a session in which warnings are errors.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)
