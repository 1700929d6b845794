"""The host: processor, cores, name, and the commit that is measured."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
from pathlib import Path

from ddp_perf.system.host.control_group import cpu_quota


def allowed_cores() -> tuple[int, ...]:
    """Return the cores that this process may run on, in order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))  # macOS and Windows, where nothing is launched


def cpu_name() -> str:
    """Return the processor's model name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def cpu_slug(pool: str | None = None) -> str:
    """Return the name of the baseline file: model, number of cores, CPU quota, and host or pool.

    A model name alone does not identify a machine. A lower quota slows the same code down. The
    hosts of a pool share a file, and no host has a name with ``@``.
    """
    name = re.sub(r"\(r\)|\(tm\)|\b(intel|amd|cpu|processor)\b", " ", cpu_name().lower())
    quota, cores = cpu_quota(), len(allowed_cores())
    limit = "" if quota is None or quota >= cores else f"quota-{quota:g}"
    words = f"{name} {cores}c {limit} {host_name() if pool is None else ''}"
    slug = "cpu-" + re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")
    return slug if pool is None else f"{slug}@{pool}"


def host_name() -> str:
    return socket.gethostname()


def current_commit(directory: Path) -> str | None:
    """Return the commit in ``directory``, with ``+`` if files differ from it; None: no commit."""
    command = ["git", "-C", str(directory), "describe", "--always", "--abbrev=12"]
    try:
        done = subprocess.run(
            [*command, "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
