"""The one rule about operating systems: ranks are launched on Linux; all that reads what was
measured works on any.
"""

from __future__ import annotations

import sys

from ddp_perf.errors import LaunchError

_NAMES = {"darwin": "macOS", "win32": "Windows"}
LAUNCH_REMEDY = (
    "launch on Linux, in WSL2 or in a Linux container; what works here: pytest -m 'not perf', and"
    " ddp-perf compare, report, explain, predict, trace, audit, baseline and history"
)


def launch_obstacle() -> str | None:
    """Return why no rank can be launched on this system, or None on Linux.

    A launch depends on fork, pidfd, process groups, the parent-death signal, /proc and CPU
    affinity: the guarantees that a rank is placed, watched and never left behind.
    """
    system: str = sys.platform  # mypy takes a comparison of sys.platform itself for settled
    if system == "linux":
        return None
    return f"ranks are launched on Linux alone, and this is {_NAMES.get(system, system)}"


def check_can_launch() -> None:
    """Raise LaunchError, with the remedy, on a system where no rank can be launched."""
    obstacle = launch_obstacle()
    if obstacle is not None:
        raise LaunchError(f"{obstacle}; {LAUNCH_REMEDY}")
