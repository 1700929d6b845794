"""A core for the thread of gloo that reads the sockets: not that of the rank's other threads.

On one core it preempts, when bytes arrive, a thread that holds the lock of their connection, and
calls ``epoll_wait`` in a loop until the scheduler's next tick, up to 4 ms later: ``handleEvents``
only tries to lock, and the event stays. A rank of a real host has more cores than one.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

_READER = "gloo_tcp_loop"
_INTERVAL_S = 0.05


def put_reader(pid: int, core: int) -> bool:
    """Put the process's reading thread on this core; return whether there is one."""
    found = False
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if (thread / "comm").read_text(encoding="utf-8").strip() == _READER:
                os.sched_setaffinity(int(thread.name), {core})
                found = True
    return found


@contextlib.contextmanager
def readers_on(cores: Mapping[int, int]) -> Iterator[None]:
    """Put the reading thread of each host's rank on its core, as soon as it exists.

    A host is the inode of its network namespace. Raises RuntimeError at the end if a host had none.
    """
    ended, missing = threading.Event(), dict(cores)

    def watch() -> None:
        while missing and not ended.wait(_INTERVAL_S):
            for process in Path("/proc").glob("[0-9]*"):
                host = _network_of(process)
                if host in missing and put_reader(int(process.name), missing[host]):
                    del missing[host]

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    if missing:
        raise RuntimeError(f"a rank ran without a thread {_READER}, which gloo names otherwise now")


def _network_of(process: Path) -> int | None:
    """Return the inode of a process's network namespace, or None if it has ended."""
    with contextlib.suppress(OSError):
        return (process / "ns/net").stat().st_ino
    return None
