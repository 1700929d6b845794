"""The cache: checkouts and virtual environments, each of which is whole or is made again.

An entry is a directory with a mark, which is written last. A process that uses an entry holds a
shared lock on it, and one that makes or removes it an exclusive lock; the kernel releases both when
the process ends. The lock is a file beside the entry.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ddp_perf.errors import SideError

_MARK = "whole"  # its time of change is when the entry was last used
_CONTENT = "content"


class Shelf(NamedTuple):
    """The entries of one kind, of which the ``most`` that were used last are kept."""

    path: Path
    most: int


def cache_shelf(kind: str, most: int, environ: Mapping[str, str]) -> Shelf:
    """Return a shelf of the user's cache: in XDG_CACHE_HOME, or in ~/.cache.

    Raises SideError for a user without a home, as in a container with another user's number.
    """
    named = environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
    base = Path(named) if os.path.isabs(named) else Path(os.path.expanduser("~/.cache"))
    if not base.is_absolute():
        raise SideError("this user has no home directory: set XDG_CACHE_HOME to one for the cache")
    return Shelf(base / "ddp-perf" / kind, most)


class Making(NamedTuple):
    """The ways to make an entry, and to check it when it is used again."""

    make: Callable[[Path], None]  # in this directory, which does not exist yet
    is_whole: Callable[[Path], bool]
    on_progress: Callable[[str], None]


@contextlib.contextmanager
def kept(shelf: Shelf, key: str, making: Making) -> Iterator[Path]:
    """Yield the content of the entry ``key``, which no process removes during the ``with`` block.

    It is made if it is missing, or not whole. Raises SideError if it cannot be written.
    """
    with contextlib.ExitStack() as held:
        try:
            shelf.path.mkdir(parents=True, exist_ok=True)
            content = _whole(shelf, key, making, held)
            _remove_oldest(shelf)
        except OSError as error:
            raise SideError(
                f"{error.filename or shelf.path}: cannot be written ({error.strerror}); make room"
                " there, or set XDG_CACHE_HOME to a directory that can be written"
            ) from None
        yield content


def is_kept(shelf: Shelf, key: str) -> bool:
    """Return whether the entry ``key`` was made."""
    return (shelf.path / key / _MARK).exists()


def _whole(shelf: Shelf, key: str, making: Making, held: contextlib.ExitStack) -> Path:
    """Return the content once it is whole, locked until ``held`` is closed."""
    entry = shelf.path / key
    while True:
        shared = _lock(entry, exclusive=False, on_wait=making.on_progress)
        marked = (entry / _MARK).exists()
        if marked and making.is_whole(entry / _CONTENT):
            held.callback(os.close, shared)
            os.utime(entry / _MARK)
            return entry / _CONTENT
        os.close(shared)
        try:
            on_wait = None if marked else making.on_progress
            exclusive = _lock(entry, exclusive=True, on_wait=on_wait)
        except BlockingIOError:  # to wait for its user would be forever if that is this process
            raise SideError(
                f"{entry / _CONTENT}: its files were changed while a duel uses them; end that duel,"
                " and let ranks write elsewhere"
            ) from None
        try:
            if not (entry / _MARK).exists() or not making.is_whole(entry / _CONTENT):
                _make(entry, making)
        finally:
            if not entry.exists():
                _lock_file(entry).unlink(missing_ok=True)
            os.close(exclusive)


def _make(entry: Path, making: Making) -> None:
    """Make the entry from nothing. A failure, or an interrupt, leaves nothing of it.

    What is there is renamed first: git may outlive a process that was killed, and still write.
    """
    if entry.exists():
        old = Path(tempfile.mkdtemp(prefix="old-", dir=entry.parent))
        entry.rename(old / entry.name)
        shutil.rmtree(old, ignore_errors=True)
    entry.mkdir()
    try:
        making.make(entry / _CONTENT)
        (entry / _MARK).touch()
    except BaseException:
        shutil.rmtree(entry, ignore_errors=True)
        raise


def _remove_oldest(shelf: Shelf) -> None:
    """Remove the entries that were used longest ago, unless a process uses them."""
    entries = sorted(filter(Path.is_dir, shelf.path.iterdir()), key=_last_use)
    surplus = len(entries) - shelf.most
    for entry in entries:
        if surplus <= 0:
            return
        with contextlib.suppress(BlockingIOError):
            lock = _lock(entry, exclusive=True, on_wait=None)
            shutil.rmtree(entry, ignore_errors=True)
            _lock_file(entry).unlink(missing_ok=True)
            os.close(lock)
            surplus -= 1


def _last_use(entry: Path) -> int:
    """Return when the entry was last used; 0: it is being made, or what made it was killed."""
    try:
        return (entry / _MARK).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _lock(entry: Path, *, exclusive: bool, on_wait: Callable[[str], None] | None) -> int:
    """Return the descriptor of the locked file. Without ``on_wait``: raise BlockingIOError."""
    import fcntl  # here, since Windows has none: the package can be imported there

    path, how = _lock_file(entry), fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if on_wait is None:
                    raise
                on_wait(f"waiting for another process, which makes or uses {entry}")
                fcntl.flock(descriptor, how)
            if path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another process removed the entry before it was locked


def _lock_file(entry: Path) -> Path:
    return entry.parent / f"{entry.name}.lock"
