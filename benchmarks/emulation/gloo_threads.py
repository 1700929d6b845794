"""Real-time priority for the threads of gloo, as if they had a core beside that of their rank.

Where they share one, the thread that reads the sockets preempts a thread that holds the lock of a
connection, and calls ``epoll_wait`` in a loop until the scheduler's next tick, up to 4 ms later:
``handleEvents`` only tries to lock, and the event stays. At the same priority of SCHED_FIFO no
thread preempts the other, and both preempt the computation.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_OF_A_RANK = {"gloo_tcp_loop": 1, "pt_gloo_runloop": 2}
_INTERVAL_S = 0.05


def put_first(pid: int) -> bool:
    """Give the process's threads of gloo their priority; return whether it has all of them."""
    found = dict.fromkeys(_OF_A_RANK, 0)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            name = (thread / "comm").read_text(encoding="utf-8").strip()
            if name in found:
                os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(1))
                found[name] += 1
    return all(found[name] >= count for name, count in _OF_A_RANK.items())


@contextlib.contextmanager
def gloo_first(networks: set[int]) -> Iterator[None]:
    """Give a rank on each of these hosts the priority as soon as its threads exist.

    A host is the inode of its network namespace. Raises RuntimeError at the end if a rank never had
    the threads.
    """
    ended, missing = threading.Event(), set(networks)

    def watch() -> None:
        while missing and not ended.wait(_INTERVAL_S):
            for process in Path("/proc").glob("[0-9]*"):
                host = _network_of(process)
                if host in missing and put_first(int(process.name)):
                    missing.discard(host)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    if missing:
        raise RuntimeError("a rank ran without the threads of gloo that have the names of torch")


def _network_of(process: Path) -> int | None:
    """Return the inode of a process's network namespace, or None if it has ended."""
    with contextlib.suppress(OSError):
        return (process / "ns/net").stat().st_ino
    return None
