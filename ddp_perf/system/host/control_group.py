"""CPU time and memory: what the control group of this process may use, and what it was denied.

Both versions of control groups are supported (cgroups(7)). A quota may be set on the group of the
process or on any group above it. So each group that this process can see is read: in a container,
up to the container's own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

import msgspec

from ddp_perf.system.host.kernel_files import number_of, text_of


class CpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds of one group so far, summed over its cores."""

    used: float
    throttled: float


def read_cpu_use(root: Path = Path("/")) -> dict[Path, CpuUse]:
    """Return the CPU use of each group that can have a quota, by its directory."""
    if groups := group_directories("cpu", root):
        # The controller cpuacct has the same groups, and usually the same directories.
        accounts = group_directories("cpuacct", root)
        uses = {group: _version_1(group, at) for group, at in zip(groups, accounts, strict=False)}
    else:
        uses = {group: _version_2(group) for group in group_directories("", root)}
    return {group: use for group, use in uses.items() if use is not None}


def _version_1(group: Path, account: Path) -> CpuUse | None:
    throttled_ns = _fields(group / "cpu.stat").get("throttled_time")
    used_ns = number_of(account / "cpuacct.usage")
    if throttled_ns is None or used_ns is None:
        return None
    return CpuUse(used=used_ns / 1e9, throttled=throttled_ns / 1e9)


def _version_2(group: Path) -> CpuUse | None:
    fields = _fields(group / "cpu.stat")
    if "throttled_usec" not in fields:  # a group without the CPU controller has no quota
        return None
    return CpuUse(used=fields["usage_usec"] / 1e6, throttled=fields["throttled_usec"] / 1e6)


def _fields(path: Path) -> dict[str, int]:
    """Return the fields of a file with lines such as ``usage_usec 123``."""
    rows = (line.split() for line in (text_of(path) or "").splitlines())
    return {name: int(value) for name, value in rows}


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the lowest CPU quota of the own group and those above it, in cores, or None."""
    limits = [  # without a limit the quota is -1 in version 1, and "max" in version 2
        (_word(group / "cpu.cfs_quota_us"), _word(group / "cpu.cfs_period_us"))
        for group in group_directories("cpu", root)
    ] or [
        (_word(group / "cpu.max"), _word(group / "cpu.max", 1))
        for group in group_directories("", root)
    ]
    quotas = [int(quota) / int(period) for quota, period in limits if quota.isdecimal()]
    return min(quotas, default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that this process and those beside it may use; None: unknown.

    It is the lowest limit of the own group and the groups above it (version 2), or what the
    machine has.
    """
    words = [
        _word(group / name)
        for group in group_directories("", root)
        for name in ("memory.max", "memory.high")
    ]
    limits = [int(word) for word in words if word.isdecimal()]  # not "max": no limit
    if (total_kb := _word(root / "proc/meminfo", 1)).isdecimal():  # "MemTotal: 16314616 kB"
        limits.append(int(total_kb) * 1024)
    return min(limits, default=None)


def _word(path: Path, position: int = 0) -> str:
    """Return a word of a file, or an empty one if there is none."""
    words = (text_of(path) or "").split()
    return words[position] if position < len(words) else ""


def read_memory_stall_s(root: Path = Path("/")) -> float | None:
    """Return the seconds so far in which some process of the own group waited for memory.

    If the kernel does not count that for groups, the figure is that of the whole machine. None: it
    is not counted at all.
    """
    own = group_directories("", root)[:1]
    for file in (*(group / "memory.pressure" for group in own), root / "proc/pressure/memory"):
        if match := re.search(r"^some .*\btotal=(\d+)", text_of(file) or "", flags=re.MULTILINE):
            return int(match[1]) / 1e6
    return None


def group_directories(controller: str, root: Path = Path("/")) -> list[Path]:
    """Return the directories of the own group and of the groups above it, the own group first.

    ``controller`` is a controller of version 1, such as "cpu"; "" means version 2. The list is
    empty if the group is not found.
    """
    try:
        # The files contain paths, which have no fixed encoding.
        groups = os.fsdecode((root / "proc/self/cgroup").read_bytes())
        mounts = os.fsdecode((root / "proc/self/mountinfo").read_bytes())
    except OSError:
        return []
    group, mount = _own_group(groups, controller), _mount(mounts, controller)
    if group is None or mount is None:
        return []
    mounted, directory = mount
    top = root / directory.relative_to("/")
    if ".." in group.parts or not group.is_relative_to(mounted):
        return [top]  # the own group lies above what this container sees
    own = top / group.relative_to(mounted)
    return [own, *(parent for parent in own.parents if parent.is_relative_to(top))]


def _own_group(text: str, controller: str) -> PurePosixPath | None:
    """Parse the own group of lines such as ``4:cpu,cpuacct:/user.slice`` and ``0::/user.slice``."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):  # version 2 has an empty list of them
            return PurePosixPath(path)
    return None


def _mount(text: str, controller: str) -> tuple[PurePosixPath, PurePosixPath] | None:
    """Return the mounted group and its directory, or None.

    The lines of ``text`` are such as
    ``31 23 0:28 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct``.
    """
    for line in text.splitlines():
        place, _, kind = line.partition(" - ")
        filesystem, _, options = kind.split(" ", 2)
        wanted = "cgroup" if controller else "cgroup2"
        if filesystem == wanted and (not controller or controller in options.split(",")):
            mounted, directory = place.split(" ")[3:5]
            return PurePosixPath(mounted), PurePosixPath(directory)
    return None
