"""The processes that a script started by multiprocessing, as for its DataLoader."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing import resource_tracker
from typing import Any

_JOIN_S = 1.0


def end_children() -> None:
    """End them and then their tracker, which removes the names of their semaphores.

    The supervisor kills what is left, and would kill the tracker together with them.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a DataLoader raises an error for its worker
    children = multiprocessing.active_children()
    for child in children:
        child.kill()
    for child in children:
        child.join(_JOIN_S)
    tracker: Any = resource_tracker._resource_tracker
    if tracker._pid is not None:
        os.close(tracker._fd)
        _await(tracker._pid)


def _await(pid: int) -> None:
    """Wait a moment for the end of a child. It stays if another process keeps its pipe open."""
    end = time.monotonic() + _JOIN_S
    with contextlib.suppress(ChildProcessError):  # of the server
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < end:
            time.sleep(0.01)
