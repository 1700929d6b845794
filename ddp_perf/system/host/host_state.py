"""The present limits and use of the host, as the kernel reports them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.system.host.control_group import cpu_quota
from ddp_perf.system.host.core_times import CoreTimes, read_core_times
from ddp_perf.system.host.host import allowed_cores, cpu_name, host_name


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
        governor=_text(clock),
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


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
