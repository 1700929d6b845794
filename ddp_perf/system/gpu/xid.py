"""Xid errors: what the NVIDIA driver wrote into the kernel's log of a GPU that failed."""

from __future__ import annotations

import os
import re
from pathlib import Path

_KERNEL_LOG = Path("/dev/kmsg")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")
# These are an application's own faults, after which the GPU is as sound as before: an exception of
# a kernel, a page fault, and the end of a process that had either or that was killed (NVIDIA,
# "XID Errors": 13, 31, 43, 45). They stay in the log until the next boot.
_OF_APPLICATIONS = frozenset({"13", "31", "43", "45"})
_RECORD = 8192  # bytes: the kernel hands out one record a read, and none is longer


def find_xids(log: Path = _KERNEL_LOG) -> list[str]:
    """Return each error of a GPU once, oldest first: ``Xid 79 of 0000:3b:00: GPU has fallen off the
    bus.`` An application's own faults are left out.

    Empty where there are none, or where the log may not be read (kernel.dmesg_restrict).
    """
    found = [
        f"Xid {number} of {place}" + (f": {text.strip()}" if text else "")
        for place, number, text in _XID.findall(_read(log))
        if number not in _OF_APPLICATIONS
    ]
    return list(dict.fromkeys(found))


def _read(log: Path) -> str:
    """All that the log holds now. Records that it overwrote meanwhile are skipped."""
    try:
        # Windows has no such flag, nor the log.
        descriptor = os.open(log, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return ""
    records = []
    try:
        while True:
            try:
                record = os.read(descriptor, _RECORD)
            except BrokenPipeError:
                continue
            except OSError:  # BlockingIOError: that was the newest
                break
            if not record:
                break
            records.append(record)
    finally:
        os.close(descriptor)
    return b"".join(records).decode(errors="replace")
