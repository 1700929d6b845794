"""What a fault left over: processes, sockets, and files, of what this process began."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ddp_perf.system.host.processes import children_of

_SHARED = Path("/dev/shm")
# By the file of /proc/net: the state of a socket to which others can send.
_LISTENS = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}


def present() -> frozenset[str]:
    """Name what is there now; what is there after a fault, and was not before, is left over."""
    temporary = Path(tempfile.gettempdir())
    processes = {*_descendants(os.getpid()), *_started_with(f"TMPDIR={temporary}")}
    sockets = (
        f"socket {address} of process {pid}" for pid in processes for address in listening(pid)
    )
    running = (f"process {pid}" for pid in processes)
    return frozenset((*running, *sockets, *_shared(), *_files(temporary)))


def leaked(before: frozenset[str]) -> tuple[str, ...]:
    """Name what is new at two looks: what others begin to share is nobody's for a moment."""
    return tuple(sorted((present() - before) & present()))


def _descendants(pid: int) -> Iterator[int]:
    for child in children_of(pid):
        yield child
        yield from _descendants(child)


def _started_with(variable: str) -> Iterator[int]:
    """Yield the processes with this variable: those of a job are no descendants of who began it."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if variable.encode() in environ.read_bytes().split(b"\0"):
                yield int(environ.parent.name)


def listening(pid: int) -> Iterator[str]:
    """Yield the addresses, as in /proc/net, at which a process can be reached."""
    opened = _sockets(pid)
    for name, state in _LISTENS.items():
        for line in _lines(Path(f"/proc/{pid}/net/{name}")):
            fields = line.split()
            if fields[3] == state and f"socket:[{fields[9]}]" in opened:
                yield fields[1]


def _sockets(pid: int) -> set[str]:
    found = set()
    try:
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            found.add(os.readlink(descriptor))
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended, or closed one
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []  # it ended, or is another user's


def _shared() -> Iterator[str]:
    """Name the shared memory that is nobody's: other processes of this machine use theirs.

    They map it by its inode: a semaphore gets its name after it is mapped.
    """
    with os.scandir(_SHARED) as entries:
        shared = {Path(entry.path): entry.inode() for entry in entries}
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        for line in _lines(maps):
            if str(_SHARED) in line:
                mapped.add(int(line.split()[4]))
    for path, inode in shared.items():
        if inode not in mapped and path.exists():
            yield str(path)


def _files(directory: Path) -> Iterator[str]:
    for path in directory.rglob("*"):
        yield str(path)
