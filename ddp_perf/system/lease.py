"""Leases of a machine across processes and users: all of it for timing, or some GPUs for tests.

Tests that measure no time need only GPUs of their own. The kernel releases a lock when its process
ends, so no lock can become stale; files that are left behind mean nothing.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import filelock

from ddp_perf.core.gpu import Gpu
from ddp_perf.errors import LeaseError

LEASES = "DDP_PERF_LEASES"  # the environment variable that names the directory of the locks
_POLL_S = 0.05
_MACHINE = "machine"
_TURN = "gpus"  # locked while GPUs are taken: else two could wait for each other's GPUs forever


def lease_directory() -> Path:
    """Return the directory of the locks, and make it if it is missing.

    All users of the machine share it, whatever their TMPDIR; containers of one machine share one
    that each of them mounts. It is not sticky, so that each user can open all locks. Raises
    LeaseError if it cannot be made or written.
    """
    directory = Path(os.environ.get(LEASES) or "/tmp/ddp-perf-leases")
    try:
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise LeaseError(f"{directory}: cannot be made: {error.strerror}") from None
    with contextlib.suppress(PermissionError):  # another user made it, with this mode
        directory.chmod(0o777)
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
    locks = {gpu: _lock(directory, gpu.uuid) for gpu in gpus}
    taken: list[Gpu] = []
    try:
        _take(count, locks, taken, directory, patience_s, on_wait)
        yield tuple(gpu for gpu in gpus if gpu in taken)
    finally:
        for gpu in taken:
            _release(locks[gpu], directory, gpu.uuid)


def _take(
    count: int,
    locks: dict[Gpu, filelock.BaseFileLock],
    taken: list[Gpu],
    directory: Path,
    patience_s: float,
    on_wait: Callable[[str], None],
) -> None:
    """Add ``count`` GPUs to ``taken``. The caller releases them, also after an error."""
    deadline = time.monotonic() + patience_s
    turn = _lock(directory, _TURN)
    was_reported = False
    try:
        while not (_acquired(turn) and _take_free(count, locks, taken, directory)):
            holders = sorted({_holder(directory, g.uuid) for g in locks if g not in taken})
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


def _take_free(
    count: int, locks: dict[Gpu, filelock.BaseFileLock], taken: list[Gpu], directory: Path
) -> bool:
    """Take free GPUs, up to ``count`` in all, and return whether there are so many."""
    for gpu, lock in locks.items():
        if len(taken) < count and gpu not in taken and _acquired(lock):
            taken.append(gpu)
            _write_holder(directory, gpu.uuid)
    return len(taken) == count


@contextlib.contextmanager
def _only_one(directory: Path, patience_s: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    lock = _lock(directory, _MACHINE)
    if not _acquired(lock):
        who = _holder(directory, _MACHINE)
        on_wait(f"this machine is being measured by {who}; waiting up to {patience_s:.0f} s")
        if not _acquired(lock, patience_s):
            raise LeaseError(
                f"this machine is still being measured by {_holder(directory, _MACHINE)} after"
                f" {patience_s:.0f} s; run again when it is done"
            )
    try:
        _write_holder(directory, _MACHINE)
        yield
    finally:
        _release(lock, directory, _MACHINE)


def _lock(directory: Path, name: str) -> filelock.BaseFileLock:
    return filelock.FileLock(directory / f"{name}.lock", mode=0o666)


def _acquired(lock: filelock.BaseFileLock, timeout_s: float = 0) -> bool:
    """Return whether ``lock`` is acquired, now or earlier.

    Raises LeaseError if nobody can acquire it.
    """
    if lock.is_locked:
        return True
    try:
        lock.acquire(timeout=timeout_s)
    except filelock.Timeout:
        return False
    except OSError as error:
        raise LeaseError(
            f"{lock.lock_file}: cannot be locked ({error.strerror}); if it belongs to another user,"
            " ask that user to remove it"
        ) from None
    return True


def _release(lock: filelock.BaseFileLock, directory: Path, name: str) -> None:
    with contextlib.suppress(OSError):
        _holder_file(directory, name).unlink()
    lock.release()


def _holder_file(directory: Path, name: str) -> Path:
    return directory / f"{name}.holder"


def _holder(directory: Path, name: str) -> str:
    try:
        return (
            _holder_file(directory, name).read_text(encoding="utf-8", errors="replace").strip()
            or "another session"
        )
    except OSError:
        return "another session"


def _write_holder(directory: Path, name: str) -> None:
    """Write who has the lease.

    The file is replaced, not rewritten: the last holder may have been another user.
    """
    with contextlib.suppress(OSError):  # a full disk must not stop a measurement
        holder = _holder_file(directory, name)
        beside = holder.with_suffix(f".{os.getpid()}")
        text = f"{_user()} (pid {os.getpid()}, since {time.strftime('%H:%M')})"
        beside.write_text(text, encoding="utf-8", errors="replace")
        beside.replace(holder)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"user {os.getuid()}"
