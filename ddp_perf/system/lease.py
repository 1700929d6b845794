"""One timed session at a time on a machine, across processes and users."""

from __future__ import annotations

import contextlib
import getpass
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from ddp_perf.errors import LeaseError


def lease_directory() -> Path:
    """Shared by all users of the machine, whatever their TMPDIR. Not sticky, so that each
    may open all locks.
    """
    directory = Path("/tmp/ddp-perf-leases")
    directory.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):  # another user made it, with this mode
        directory.chmod(0o777)
    return directory


@contextlib.contextmanager
def machine_lease(
    *, patience_s: float, on_wait: Callable[[str], None], directory: Path | None = None
) -> Iterator[None]:
    """Hold this machine for timing; the kernel frees it when the holder dies.

    ``on_wait`` is told who holds it before waiting up to ``patience_s`` seconds.
    Raises LeaseError when it is still held then.
    """
    directory = directory or lease_directory()
    lock = filelock.FileLock(directory / "machine.lock", mode=0o666)
    holder = directory / "machine.holder"
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        who = _read(holder)
        on_wait(f"this machine is being measured by {who}; waiting up to {patience_s:.0f} s")
        try:
            lock.acquire(timeout=patience_s)
        except filelock.Timeout:
            raise LeaseError(
                f"this machine is still being measured by {_read(holder)} after"
                f" {patience_s:.0f} s; run again when it is done"
            ) from None
    try:
        _write(holder, f"{_user()} (pid {os.getpid()}, since {time.strftime('%H:%M')})")
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink()
        lock.release()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"user {os.getuid()}"


def _read(holder: Path) -> str:
    try:
        return holder.read_text().strip() or "another session"
    except OSError:
        return "another session"


def _write(holder: Path, text: str) -> None:
    """Say who measures. Replaced, not rewritten: the last holder may have been another user."""
    with contextlib.suppress(OSError):  # a full disk must not stop a measurement
        beside = holder.with_suffix(f".{os.getpid()}")
        beside.write_text(text)
        beside.replace(holder)
