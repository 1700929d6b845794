"""SIGTERM as an interrupt: CI systems, Slurm and Kubernetes send it before they kill a job.

SIGHUP is the same: a terminal that is closed, or an SSH connection that is lost, sends it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

_ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextlib.contextmanager
def sigterm_calls(interrupt: Callable[[], NoReturn]) -> Iterator[None]:
    """Call ``interrupt``, which raises, at the first SIGTERM or SIGHUP within the block.

    A second SIGTERM ends the process at once; a second SIGHUP does not, because a shell and the
    kernel both send one. The earlier handlers are restored afterwards. The block runs unchanged
    outside the main thread, which alone receives signals. A signal that is ignored stays ignored.
    """
    earlier = {number: signal.getsignal(number) for number in _ENDS}
    # None: Python did not install it.
    handled = [number for number, was in earlier.items() if was not in (signal.SIG_IGN, None)]
    if threading.current_thread() is not threading.main_thread():
        handled = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in handled:
            signal.signal(each, signal.SIG_DFL if each == signal.SIGTERM else signal.SIG_IGN)
        interrupt()

    for number in handled:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, earlier[number])
