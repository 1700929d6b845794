"""Network interfaces: their counters and the speed of their link, read from /sys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ddp_perf.core.case import Case

_INTERFACES = Path("/sys/class/net")


class InterfaceBytes(NamedTuple):
    """Bytes of an interface since it exists. Over ``lo`` each byte is sent and received."""

    sent: int
    received: int


def group_interface(case: Case) -> str | None:
    """Return the interface that the process group of the case uses, or None for one rank.

    It is what the variable of the backend names. NCCL accepts a prefix, and both accept several
    names; then no interface has that name, and it has no counters.
    """
    variable = "NCCL_SOCKET_IFNAME" if case.tier == "gpu" else "GLOO_SOCKET_IFNAME"
    name = os.environ.get(variable, "").removeprefix("=")
    return name if name and case.world_size > 1 else None


def read_interface(name: str) -> InterfaceBytes | None:
    """Return the counters of the interface of this name, or None if there is no such interface."""
    counters = _INTERFACES / name / "statistics"
    try:
        return InterfaceBytes(
            sent=int((counters / "tx_bytes").read_text(encoding="ascii")),
            received=int((counters / "rx_bytes").read_text(encoding="ascii")),
        )
    except (OSError, ValueError):
        return None


def link_speed(name: str) -> float | None:
    """Return the speed of the interface's link in bytes/s and direction, or None if it has none."""
    try:
        mbits = int((_INTERFACES / name / "speed").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return mbits * 1e6 / 8 if mbits > 0 else None  # -1: the driver does not know it
