"""SIGTERM as an interrupt: CI systems, Slurm and Kubernetes send it before they kill a job."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn


@contextlib.contextmanager
def sigterm_calls(interrupt: Callable[[], NoReturn]) -> Iterator[None]:
    """Call ``interrupt``, which raises, at the first SIGTERM within the block.

    A second SIGTERM ends the process at once. The earlier handler is restored afterwards. The
    block runs unchanged outside the main thread, which alone receives signals, and if SIGTERM is
    ignored.
    """
    earlier = signal.getsignal(signal.SIGTERM)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or earlier in (signal.SIG_IGN, None):  # None: Python did not install it
        yield
        return

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        interrupt()

    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)
