"""Leases of a machine across processes and users: all of it for timing, or some GPUs for tests.

Tests that measure no time need only GPUs of their own. The kernel releases a lock when its process
ends, so no lock can become stale; files that are left behind mean nothing.

Every user may change the directory of the locks, so nothing in it is trusted: no link is followed,
and a text from it is cut and has no control characters.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ddp_perf.core.gpu import Gpu
from ddp_perf.errors import LeaseError

LEASES = "DDP_PERF_LEASES"  # the environment variable that names the directory of the locks
_POLL_S = 0.05
_MACHINE = "machine"
_HOLDER_BYTES = 200
_SOMEBODY = "another session"
_UMASK = threading.Lock()  # a process has one umask, whatever its threads
_TURN = "gpus"  # locked while GPUs are taken: else two could wait for each other's GPUs forever


def lease_directory() -> Path:
    """Return the directory of the locks, and make it if it is missing.

    All users of the machine share it, whatever their TMPDIR; containers of one machine share one
    that each of them mounts. It is not sticky, so that each user can open all locks. Raises
    LeaseError if it cannot be made or written, or is a link, which another user may have made.
    """
    directory = Path(os.environ.get(LEASES) or "/tmp/ddp-perf-leases")
    try:
        directory.mkdir()
        directory.chmod(0o777)  # whatever the umask
    except FileExistsError:
        pass
    except OSError as error:
        raise LeaseError(f"{directory}: cannot be made: {error.strerror}") from None
    if directory.is_symlink() or not directory.is_dir():
        raise LeaseError(
            f"{directory}: it is not a directory but a link or a file; remove it, or name a"
            f" directory in {LEASES}"
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        raise LeaseError(
            f"{directory}: not writable, so this measurement cannot keep others away;"
            f" ask its owner to run chmod 777 {directory}"
        )
    return directory


@contextlib.contextmanager
def machine_lease(
    *,
    patience_s: float,
    on_wait: Callable[[str], None],
    gpus: Sequence[Gpu] = (),
    directory: Path | None = None,
) -> Iterator[None]:
    """Lease this machine for timing, and each of ``gpus``, which `gpu_lease` leases too.

    Waits up to ``patience_s`` seconds for the machine, and as long for the GPUs. Before a wait,
    ``on_wait`` receives a text that names the holder. Raises LeaseError if the lease is not free
    in that time.
    """
    directory = directory or lease_directory()
    with contextlib.ExitStack() as leases:
        leases.enter_context(_only_one(directory, patience_s, on_wait))
        leases.enter_context(
            gpu_lease(
                len(gpus), gpus=gpus, patience_s=patience_s, on_wait=on_wait, directory=directory
            )
        )
        yield


@contextlib.contextmanager
def gpu_lease(
    count: int,
    *,
    gpus: Sequence[Gpu],
    patience_s: float,
    on_wait: Callable[[str], None],
    directory: Path | None = None,
) -> Iterator[tuple[Gpu, ...]]:
    """Lease ``count`` of ``gpus`` that nobody else has leased, and yield them in their order.

    Before a wait, ``on_wait`` receives a text that names the holders. Raises LeaseError if there
    are fewer than ``count`` GPUs, or fewer are free within ``patience_s`` seconds.
    """
    if count > len(gpus):
        raise LeaseError(
            f"{count} GPUs are needed, and there are {len(gpus)}; see nvidia-smi and"
            " CUDA_VISIBLE_DEVICES"
        )
    if count == 0:
        yield ()
        return
    directory = directory or lease_directory()
    locks = {gpu: _Lock(directory, gpu.uuid) for gpu in gpus}
    taken: list[Gpu] = []
    try:
        _take(count, locks, taken, _Lock(directory, _TURN), patience_s, on_wait)
        yield tuple(gpu for gpu in gpus if gpu in taken)
    finally:
        for gpu in taken:
            locks[gpu].release()


def _take(
    count: int,
    locks: dict[Gpu, _Lock],
    taken: list[Gpu],
    turn: _Lock,
    patience_s: float,
    on_wait: Callable[[str], None],
) -> None:
    """Add ``count`` GPUs to ``taken``. The caller releases them, also after an error."""
    deadline = time.monotonic() + patience_s
    was_reported = False
    try:
        while not (turn.acquire() and _take_free(count, locks, taken)):
            holders = sorted({lock.holder() for gpu, lock in locks.items() if gpu not in taken})
            state = f"{len(taken)} of {count} GPUs are free; the others are used by"
            if time.monotonic() >= deadline:
                raise LeaseError(
                    f"{state} {', '.join(holders)}, still after {patience_s:.0f} s; run again"
                    " when they are done"
                )
            if not was_reported:
                on_wait(f"{state} {', '.join(holders)}; waiting up to {patience_s:.0f} s")
                was_reported = True
            time.sleep(_POLL_S)
    finally:
        turn.release()


def _take_free(count: int, locks: dict[Gpu, _Lock], taken: list[Gpu]) -> bool:
    """Take free GPUs, up to ``count`` in all, and return whether there are so many."""
    for gpu, lock in locks.items():
        if len(taken) < count and gpu not in taken and lock.acquire():
            taken.append(gpu)
    return len(taken) == count


@contextlib.contextmanager
def _only_one(directory: Path, patience_s: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    lock = _Lock(directory, _MACHINE)
    if not lock.acquire():
        on_wait(
            f"this machine is being measured by {lock.holder()}; waiting up to {patience_s:.0f} s"
        )
        deadline = time.monotonic() + patience_s
        while not lock.acquire():
            if time.monotonic() >= deadline:
                raise LeaseError(
                    f"this machine is still being measured by {lock.holder()} after"
                    f" {patience_s:.0f} s; run again when it is done"
                )
            time.sleep(_POLL_S)
    try:
        yield
    finally:
        lock.release()


class _Lock:
    """A lock of the kernel on a file, which has the name of the holder as its text."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"{name}.lock"
        self._file: int | None = None  # while the lock is held

    def acquire(self) -> bool:
        """Return whether the lock is acquired, now or earlier.

        Raises LeaseError if nobody can acquire it.
        """
        while self._file is None:
            try:
                file = self._open()
                if not _is_locked_now(file):
                    return False
            except OSError as error:
                raise LeaseError(
                    f"{self._path}: cannot be locked ({error.strerror}); if it belongs to another"
                    " user, ask that user to remove it"
                ) from None
            if os.fstat(file).st_nlink == 0:  # removed before it was locked
                os.close(file)
                continue
            self._file = file
            _write_holder(file)
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def holder(self) -> str:
        """Return the text of who has the lock, or had it last."""
        try:
            file = self._open()
        except OSError:
            return _SOMEBODY
        with os.fdopen(file, "rb") as stream:
            text = stream.read(_HOLDER_BYTES).decode("utf-8", "replace")
        return "".join(filter(str.isprintable, text)) or _SOMEBODY

    def _open(self) -> int:
        """Open the file, and make it if it is missing. Raises OSError if it is a link.

        The owner of the directory may replace it by a link at any time.
        """
        directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            file = _open_in(directory, self._path.name)
        finally:
            os.close(directory)
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
            return file
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a plain file with one name")


def _open_in(directory: int, name: str) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    with contextlib.suppress(FileNotFoundError):
        # Without O_CREAT, which the kernel may forbid for files of others.
        return os.open(name, flags, dir_fd=directory)
    with _UMASK:
        umask = os.umask(0)  # other users lock it, too, from the moment at which it is there
        try:
            return os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=directory)
        except FileExistsError:
            return os.open(name, flags, dir_fd=directory)
        finally:
            os.umask(umask)


def _is_locked_now(file: int) -> bool:
    """Lock the file and return True, or close it. Raises OSError if nobody can lock it."""
    import fcntl  # here, since Windows has none: the package can be imported there

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if isinstance(error, BlockingIOError):
            return False
        raise
    return True


def _write_holder(file: int) -> None:
    text = f"{_user()} (pid {os.getpid()}, since {time.strftime('%H:%M')})"
    with contextlib.suppress(OSError):  # a full disk must not stop a measurement
        os.ftruncate(file, 0)
        os.pwrite(file, text.encode("utf-8", "replace"), 0)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"user {os.getuid()}"
