"""The end of processes: SIGTERM as an interrupt, and death with the parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

# SIGTERM as an interrupt: CI systems, Slurm and Kubernetes send it before they kill a job.
#
# SIGHUP is the same: a terminal that is closed, or an SSH connection that is lost, sends it.


_ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextlib.contextmanager
def sigterm_calls(interrupt: Callable[[], NoReturn]) -> Iterator[None]:
    """Call ``interrupt``, which raises, at the first SIGTERM or SIGHUP within the block.

    A second SIGTERM ends the process at once; a second SIGHUP does not, because a shell and the
    kernel both send one. The earlier handlers are restored afterwards. The block runs unchanged
    outside the main thread, which alone receives signals. A signal that is ignored stays ignored.
    One that Python drops, Ctrl-C as well, is sent again.
    """
    earlier = {number: signal.getsignal(number) for number in _ENDS}
    # None: Python did not install it.
    handled = [number for number, was in earlier.items() if was not in (signal.SIG_IGN, None)]
    if threading.current_thread() is not threading.main_thread():
        handled = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in handled:
            signal.signal(each, signal.SIG_DFL if each == signal.SIGTERM else signal.SIG_IGN)
        try:
            interrupt()
        except BaseException as end:
            end.__dict__.setdefault(_OF_SIGNAL, number)
            raise

    def install() -> None:
        for number in handled:
            signal.signal(number, on_signal)

    install()
    try:
        with _resent_signals(install) if handled else contextlib.nullcontext():
            yield
    finally:
        for number in handled:
            signal.signal(number, earlier[number])


_OF_SIGNAL = "__ddp_perf_signal__"
_RESENT_AFTER_S = 0.01


@contextlib.contextmanager
def _resent_signals(before: Callable[[], None]) -> Iterator[None]:
    """Send a signal again if what its handler raised was dropped, ``before`` having been called.

    Python drops whatever is raised in ``__del__`` or in the callback of a weak reference, and tells
    ``sys.unraisablehook``. Once that has returned, what ran goes on; so the signal comes later.
    """
    earlier = sys.unraisablehook

    def on_dropped(dropped: sys.UnraisableHookArgs) -> None:
        default = signal.SIGINT if isinstance(dropped.exc_value, KeyboardInterrupt) else None
        number = getattr(dropped.exc_value, _OF_SIGNAL, default)
        if number is None:
            earlier(dropped)
            return
        before()
        threading.Timer(_RESENT_AFTER_S, os.kill, (os.getpid(), number)).start()

    sys.unraisablehook = on_dropped
    try:
        yield
    finally:
        sys.unraisablehook = earlier


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Hold Ctrl-C, SIGTERM and SIGHUP back until the block has ended. It must be short.

    Another thread may still receive one. A system without masks of signals holds none.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *_ENDS))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# The kernel, at the end of a parent: no rank, and no daemon of one, outlives the run.


_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when ``parent`` (a pid) ends. Linux only.

    The signal depends on the *thread* that created this process, so the parent must create it
    from its main thread. If the parent ended before this call, the process is killed here.
    """
    if not sys.platform.startswith("linux"):
        return
    _set(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Let the descendants of this process that lose their parents become its children. Linux only.

    A daemon then stays in the family of the rank that started it. A process that this one executes
    keeps the setting, and its children do not get it.
    """
    if sys.platform.startswith("linux"):
        _set(_PR_SET_CHILD_SUBREAPER, 1)


def _set(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
