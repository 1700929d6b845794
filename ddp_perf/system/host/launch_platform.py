"""The rule about operating systems: ranks are launched only on Linux; all else works anywhere."""

from __future__ import annotations

import sys

from ddp_perf.errors import LaunchError

_NAMES = {"darwin": "macOS", "win32": "Windows"}
LAUNCH_REMEDY = (
    "launch on Linux, in WSL2 or in a Linux container; what works here: pytest -m 'not"
    " perf and not work', ddp-perf compare, judge, report, explain, predict, trace, audit, baseline"
    " and history"
)


def launch_obstacle() -> str | None:
    """Return why no rank can be launched on this system, or None on Linux.

    A launch needs fork, pidfd, process groups, the parent-death signal, /proc and CPU affinity.
    They guarantee that a rank is placed, watched and never left behind.
    """
    system: str = sys.platform  # mypy would evaluate a comparison of sys.platform itself
    if system == "linux":
        return None
    return f"ranks can be launched only on Linux, and this is {_NAMES.get(system, system)}"


def check_can_launch() -> None:
    """Raise LaunchError, with the remedy, on a system where no rank can be launched."""
    obstacle = launch_obstacle()
    if obstacle is not None:
        raise LaunchError(f"{obstacle}; {LAUNCH_REMEDY}")
