"""Who may use what of a machine, across processes and users: the whole of it for timing, some
of its GPUs for tests that only have to be right.

Each lock is held by the kernel for a process and freed when that dies, so none can go stale; the
files that are left say nothing.
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

_POLL_S = 0.05
_MACHINE = "machine"
_TURN = "gpus"  # held while GPUs are taken: two that hold half of what they need wait forever


def lease_directory() -> Path:
    """Shared by all users of the machine, whatever their TMPDIR. Not sticky, so that each
    may open all locks. Raises LeaseError where it cannot be made or written.
    """
    directory = Path("/tmp/ddp-perf-leases")
    try:
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise LeaseError(f"{directory}: cannot be made: {error.strerror}") from None
    with contextlib.suppress(PermissionError):  # another user made it, with this mode
        directory.chmod(0o777)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise LeaseError(
            f"{directory}: not writable, so nobody else can be kept from measuring here;"
            f" have its owner run chmod 777 {directory}"
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
    """Hold this machine for timing, and each of ``gpus``, which `gpu_lease` hands out too.

    ``on_wait`` is told who holds it before waiting up to ``patience_s`` seconds for the machine,
    and as long for the GPUs. Raises LeaseError when it is still held then.
    """
    directory = directory or lease_directory()
    with contextlib.ExitStack() as held:
        held.enter_context(_only_one(directory, patience_s, on_wait))
        held.enter_context(
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
    """Hold ``count`` of ``gpus`` that nobody else holds, in their order.

    Raises LeaseError where there are not so many, or not so many are free in ``patience_s``
    seconds; ``on_wait`` is told who holds them before.
    """
    if count > len(gpus):
        raise LeaseError(f"{count} GPUs are needed, and there are {len(gpus)}")
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
    """Fill ``taken``, which the caller gives back whatever happens."""
    deadline = time.monotonic() + patience_s
    turn = _lock(directory, _TURN)
    told = False
    try:
        while not (_acquired(turn) and _take_free(count, locks, taken, directory)):
            holders = sorted({_holder(directory, g.uuid) for g in locks if g not in taken})
            state = f"{len(taken)} of {count} GPUs are free; others are used by"
            if time.monotonic() >= deadline:
                raise LeaseError(
                    f"{state} {', '.join(holders)}, still after {patience_s:.0f} s; run again"
                    " when they are done"
                )
            if not told:
                on_wait(f"{state} {', '.join(holders)}; waiting up to {patience_s:.0f} s")
                told = True
            time.sleep(_POLL_S)
    finally:
        turn.release()


def _take_free(
    count: int, locks: dict[Gpu, filelock.BaseFileLock], taken: list[Gpu], directory: Path
) -> bool:
    """Take what is free, up to ``count``; whether that is reached."""
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
    """Held by this very lock, now or from before. Raises LeaseError where nobody could."""
    if lock.is_locked:
        return True
    try:
        lock.acquire(timeout=timeout_s)
    except filelock.Timeout:
        return False
    except OSError as error:
        raise LeaseError(
            f"{lock.lock_file}: cannot be locked ({error.strerror}); if it is another user's, have"
            " them remove it"
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
    """Say who holds it. Replaced, not rewritten: the last holder may have been another user."""
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
