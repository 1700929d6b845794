"""The present limits and load of the host, as the kernel reports them."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from ddp_perf.system.host.host import allowed_cores, cpu_name, host_name


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the host at one moment. None: not reported here."""

    name: str
    cpu: str
    cores: tuple[int, ...]  # cores that this process may use
    governor: str | None = None  # the frequency governor of the first core
    load: float | None = None  # load average of the last minute, in processes
    cpu_quota: float | None = None  # of the container, in cores
    shared_memory: int | None = None  # bytes free in /dev/shm, where ranks exchange data


def read_host_state(root: Path = Path("/")) -> HostState:
    cores = allowed_cores()
    clock = root / f"sys/devices/system/cpu/cpu{cores[0]}/cpufreq/scaling_governor"
    load = _text(root / "proc/loadavg")
    return HostState(
        name=host_name(),
        cpu=cpu_name(),
        cores=cores,
        governor=_text(clock),
        load=float(load.split()[0]) if load else None,
        cpu_quota=_cpu_quota(root / "sys/fs/cgroup"),
        shared_memory=_free(root / "dev/shm"),
    )


def _cpu_quota(groups: Path) -> float | None:
    """Return the quota of a container's root group in cores, or None if there is no quota.

    The control groups may be of version 2 or 1.
    """
    quota, _, period = (_text(groups / "cpu.max") or "").partition(" ")
    if not quota:
        quota = _text(groups / "cpu" / "cpu.cfs_quota_us") or ""
        period = _text(groups / "cpu" / "cpu.cfs_period_us") or ""
    if not quota.isdecimal() or not period.isdecimal():
        return None  # "max", or -1: no limit
    return int(quota) / int(period)


def _free(directory: Path) -> int | None:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
