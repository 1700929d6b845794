"""The kernel, at the end of a parent: no rank, and no daemon of one, outlives the run."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

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
