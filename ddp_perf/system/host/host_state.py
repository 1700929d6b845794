"""The present limits and load of the host, as the kernel reports them."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from ddp_perf.system.host.control_group import cpu_quota
from ddp_perf.system.host.host import allowed_cores, cpu_name, host_name


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the host at one moment. None: not reported here."""

    name: str
    cpu: str
    cores: tuple[int, ...]  # cores that this process may use
    governor: str | None = None  # the frequency governor of the first core
    load: float | None = None  # load average of the last minute, in processes
    cpu_quota: float | None = None  # of its control groups, in cores; None: no quota, too
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
        cpu_quota=cpu_quota(root),
        shared_memory=_free(root / "dev/shm"),
    )


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
