"""Where servers and ranks write: a directory that goes with its driver, however that ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "ddp-perf-launches-"


class ScratchDirectory:
    """A new directory, locked for as long as this process lives.

    A driver that is killed cannot remove its own; so the next one of this user removes each that
    nobody holds. The kernel drops a lock with its holder, and no other user's is touched.
    """

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            _remove_if_left(left)
        self.path, self._lock = _make_locked()

    def close(self) -> None:
        """Remove it with all that it holds. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _make_locked() -> tuple[Path, int | None]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                _lock(lock, wait=True)
            except OSError:  # a file system without locks: nobody can take it for left, either
                os.close(lock)
                return path, None
            if path.exists():
                return path, lock
            os.close(lock)  # another driver saw it before it was locked


def _remove_if_left(path: Path) -> None:
    with contextlib.suppress(OSError):  # held by its driver, or another user's
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.getuid():
                _lock(lock, wait=False)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _lock(descriptor: int, *, wait: bool) -> None:
    import fcntl  # here, since Windows has none: the package can be imported there

    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
