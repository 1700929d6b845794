"""The scratch directory of servers and ranks, which is removed however the driver ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path

# Only directories of this host are removed: some shared file systems keep locks on one host, so a
# driver on another host would find the directory of a running one without a lock.
_PREFIX = f"ddp-perf-launches-{socket.gethostname()}-"


class ScratchDirectory:
    """A new directory, locked for the life of this process.

    A driver that is killed cannot remove its directory. So the next driver of the same user
    removes each directory without a lock: the kernel releases a lock when its process ends.
    Directories of other users and of other hosts are not touched.
    """

    def __init__(self) -> None:
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            _remove_if_abandoned(path)
        self.path, self._lock = _make_locked()

    def close(self) -> None:
        """Remove the directory with its contents. A second call does nothing."""
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
            except OSError:  # a file system without locks: no other driver can remove it
                os.close(lock)
                return path, None
            if path.exists():
                return path, lock
            os.close(lock)  # another driver removed it before it was locked


def _remove_if_abandoned(path: Path) -> None:
    with contextlib.suppress(OSError):  # locked by its driver, or owned by another user
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
