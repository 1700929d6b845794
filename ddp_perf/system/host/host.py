"""The host: its processor, its name, and its limits and use, as the kernel reports them."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.secret import public_address
from ddp_perf.system.git import branch_of, head_of
from ddp_perf.system.host.control_group import cpu_quota
from ddp_perf.system.host.kernel_files import text_of
from ddp_perf.system.host.processes import CoreTimes, read_core_times


def allowed_cores() -> tuple[int, ...]:
    """Return the cores that this process may run on, in order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))  # macOS and Windows, where nothing is launched


def cpu_name() -> str:
    """Return the processor's model name."""
    text = text_of(Path("/proc/cpuinfo"))
    if text is None:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    return match[1].strip() if match else platform.machine()


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A machine on which ranks run, with what limits them on its processor."""

    name: str
    os: str
    cpu: str  # model of the processor
    cores: int  # that a process may use
    quota: float | None  # cores' worth of CPU time; None: no limit


def this_host() -> Host:
    return Host(
        name=host_name(),
        os=platform.platform(),
        cpu=cpu_name(),
        cores=len(allowed_cores()),
        quota=cpu_quota(),
    )


def cpu_slug(pool: str | None = None, host: Host | None = None) -> str:
    """Return the name of the baseline file: model, number of cores, CPU quota, and host or pool.

    ``host`` is this machine by default. A model name alone does not identify a machine. A lower
    quota slows the same code down. The hosts of a pool share a file, and no host has a name with
    ``@``.
    """
    host = host or this_host()
    name = re.sub(r"\(r\)|\(tm\)|\b(intel|amd|cpu|processor)\b", " ", host.cpu.lower())
    quota, cores = host.quota, host.cores
    limit = "" if quota is None or quota >= cores else f"quota-{quota:g}"
    words = f"{name} {cores}c {limit} {host.name if pool is None else ''}"
    slug = "cpu-" + re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")
    return slug if pool is None else f"{slug}@{pool}"


def host_name() -> str:
    return socket.gethostname()


# Where a CI system, which checks out a commit alone, names its branch: the first that is set.
_BRANCH_VARIABLES = (
    *("GITHUB_HEAD_REF", "GITHUB_REF_NAME"),
    *("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_COMMIT_BRANCH"),
)


def current_branch(directory: Path) -> str | None:
    """Return the branch in ``directory``, or that of the CI job; None: there is none."""
    if (branch := branch_of(directory)) or os.environ.get("GITHUB_REF_TYPE") == "tag":
        return branch
    return next(filter(None, map(os.environ.get, _BRANCH_VARIABLES)), None)


# The address of the job's page, in the variable of GitLab, CircleCI, Buildkite or Jenkins.
_JOB_VARIABLES = ("CI_JOB_URL", "CIRCLE_BUILD_URL", "BUILDKITE_BUILD_URL", "BUILD_URL")


def job_address(environ: Mapping[str, str]) -> str:
    """Return the address of the CI job that runs this, or "" if none does."""
    if {"GITHUB_REPOSITORY", "GITHUB_RUN_ID"} <= environ.keys():
        server = public_address(environ.get("GITHUB_SERVER_URL", "https://github.com"))
        return f"{server}/{environ['GITHUB_REPOSITORY']}/actions/runs/{environ['GITHUB_RUN_ID']}"
    named = next((environ[name] for name in _JOB_VARIABLES if environ.get(name)), "")
    return public_address(named)


def current_commit(directory: Path) -> str | None:
    """Return the commit in ``directory``, with ``+`` if files differ from it; None: no commit."""
    head = head_of(directory)
    return None if head is None else f"{head.commit[:12]}{'+' if head.changed else ''}"


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the host at one moment. None: not reported here."""

    name: str
    cpu: str
    cores: tuple[int, ...]  # cores that this process may use
    governor: str | None = None  # the frequency governor of the first core
    busy: float | None = None  # how many of the cores worked in the last second
    cpu_quota: float | None = None  # of its control groups, in cores; None: no quota, too
    shared_memory: int | None = None  # bytes free in /dev/shm, where ranks exchange data


def _wait() -> None:
    time.sleep(1.0)


def read_host_state(root: Path = Path("/"), wait: Callable[[], None] = _wait) -> HostState:
    """Read the state; ``wait`` returns when the use of the cores was observed for long enough.

    The load average is of no use: after a session it is high for minutes.
    """
    cores = allowed_cores()
    clock = root / f"sys/devices/system/cpu/cpu{cores[0]}/cpufreq/scaling_governor"
    before = read_core_times(root)
    wait()
    return HostState(
        name=host_name(),
        cpu=cpu_name(),
        cores=cores,
        governor=text_of(clock) or None,
        busy=_busy(cores, before, read_core_times(root)),
        cpu_quota=cpu_quota(root),
        shared_memory=_free(root / "dev/shm"),
    )


def _busy(
    cores: Sequence[int], before: Mapping[int, CoreTimes], now: Mapping[int, CoreTimes]
) -> float | None:
    """Return how many of these cores worked between the readings; None if that is not counted."""
    known = [core for core in cores if core in before and core in now]
    passed = [now[core].since(before[core]) for core in known]
    if not passed or any(times.total <= 0 for times in passed):
        return None
    return sum(max(0.0, 1 - times.idle / times.total) for times in passed)


def _free(directory: Path) -> int | None:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None
