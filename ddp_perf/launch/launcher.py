"""The interface of a launcher, and the scratch directory of what it starts."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.errors import LaunchError

# The interface of a launcher. Code above it does not depend on how ranks are started.


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The versions in the interpreter that runs the ranks. None: torch was built without it."""

    python: str
    torch: str
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    blas: str | None

    @property
    def lacking(self) -> str | None:
        """The part that the gpu tier needs and torch lacks: "CUDA" or "NCCL"; None: no part."""
        if self.cuda is None:
            return "CUDA"
        return "NCCL" if self.nccl is None else None


class Launcher(Protocol):
    """A launcher starts fresh process groups, supervises every rank, and leaves no process."""

    def nodes(self, case: Case) -> tuple[str, ...]:
        """Return the nodes that a request may name, the default one first; (): one machine."""
        ...

    def runtime(self, case: Case | None = None) -> Runtime:
        """Return the versions that ranks of ``case``, or of any case, run on.

        Raises LaunchError if they cannot be read.
        """
        ...

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        """Run one launch to its end. Raises LaunchError if ranks cannot be started."""
        ...

    def close(self) -> None:
        """End every process that still runs. A second call does nothing."""
        ...


def check_device_order(environ: Mapping[str, str]) -> None:
    """Raise LaunchError if CUDA would number the GPUs in another order than NVML.

    NVML's readings belong to the GPUs in NVML's order. In another order a mask would choose other
    GPUs than the user meant, and the figures of rank r would be those of another GPU.
    """
    order = environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if order != "PCI_BUS_ID":
        raise LaunchError(
            f"CUDA_DEVICE_ORDER={order}: this suite numbers GPUs by their PCI bus ids, as"
            " nvidia-smi does; unset it, and choose GPUs by CUDA_VISIBLE_DEVICES in that order"
        )


# The scratch directory of servers and ranks, which is removed however the driver ends.


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
