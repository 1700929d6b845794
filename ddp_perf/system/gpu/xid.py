"""Xid errors: the NVIDIA driver's records of failed GPUs in the kernel's log."""

from __future__ import annotations

import os
import re
from pathlib import Path

_KERNEL_LOG = Path("/dev/kmsg")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")
# These are faults of an application, after which the GPU works as before: an exception of a kernel,
# a page fault, and the end of a process that had either or was killed (NVIDIA, "XID Errors": 13,
# 31, 43, 45). They stay in the log until the next boot.
_OF_APPLICATIONS = frozenset({"13", "31", "43", "45"})
_RECORD = 8192  # bytes: each read returns one record, and no record is longer


def find_xids(log: Path = _KERNEL_LOG) -> list[str]:
    """Return each error of a GPU once, the oldest first, without faults of applications.

    An entry is ``Xid 79 of 0000:3b:00: GPU has fallen off the bus.`` The list is empty if there
    are none, or if this process may not read the log (kernel.dmesg_restrict).
    """
    found = [
        f"Xid {number} of {place}" + (f": {text.strip()}" if text else "")
        for place, number, text in _XID.findall(_read(log))
        if number not in _OF_APPLICATIONS
    ]
    return list(dict.fromkeys(found))


def _read(log: Path) -> str:
    """Return the contents of the log. Records that are overwritten meanwhile are skipped."""
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
            except OSError:  # BlockingIOError: there are no further records
                break
            if not record:
                break
            records.append(record)
    finally:
        os.close(descriptor)
    return b"".join(records).decode(errors="replace")
