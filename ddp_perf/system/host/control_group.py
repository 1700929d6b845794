"""CPU time and memory: what the control group of this process may use, and what it was denied.

Counters are read at two moments; the difference is given as a share.

Both versions of control groups are supported (cgroups(7)). A quota may be set on the group of the
process or on any group above it. So each group that this process can see is read: in a container,
up to the container's own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

import msgspec

from ddp_perf.core.launch import share


class CpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds of one group so far, summed over its cores."""

    used: float
    throttled: float


class GroupReading(msgspec.Struct, frozen=True, kw_only=True):
    """The counters at one moment. Empty or None: unknown."""

    cpu_uses: dict[Path, CpuUse] = {}  # of the own control group and of each group above it
    memory_stall_s: float | None = None


def read_group() -> GroupReading:
    """Read the counters of the own group and of the groups above it."""
    return GroupReading(cpu_uses=read_cpu_use(), memory_stall_s=read_memory_stall_s())


class QuotaShares(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of the wanted CPU time that a quota denied, by whose use; None: unknown."""

    others: float | None = None  # because others in the group used the quota, or nobody knows who
    own: float | None = None  # because the family of the ranks used it up


def quota_shares(before: GroupReading, after: GroupReading, family_s: float | None) -> QuotaShares:
    """Return what a quota denied: the largest share of the own group and the groups above it.

    ``family_s`` is the CPU time of the ranks and their children in between. What others used is
    all that the ranks could have had instead, so no more than that share is the others' doing.
    """
    denied, by_others = [], []
    for group, use in after.cpu_uses.items():
        if group in before.cpu_uses:
            used_s = use.used - before.cpu_uses[group].used
            denied.append(_denied(before.cpu_uses[group], use))
            if family_s is not None:
                by_others.append(min(denied[-1], share(used_s - family_s, used_s)))
    if not denied or not by_others:
        return QuotaShares(others=max(denied, default=None))
    return QuotaShares(others=max(by_others), own=max(denied) - max(by_others))


def held_back_ratio(before: GroupReading, after: GroupReading) -> float:
    """Return the time for which a quota held the group back, of the CPU time that it used.

    It is the largest ratio of the own group and the groups above it, or 0 if none is known.
    """
    ratios = [
        (use.throttled - before.cpu_uses[group].throttled) / used_s
        for group, use in after.cpu_uses.items()
        if group in before.cpu_uses and (used_s := use.used - before.cpu_uses[group].used) > 0
    ]
    return max(0.0, *ratios) if ratios else 0.0


def memory_share(before: GroupReading, after: GroupReading, wall_s: float) -> float | None:
    """Return the share of the time in which some process waited for memory; None: unknown."""
    if before.memory_stall_s is None or after.memory_stall_s is None:
        return None
    return share(after.memory_stall_s - before.memory_stall_s, wall_s)


def _denied(before: CpuUse, after: CpuUse) -> float:
    """Return the denied share of the time in which the group's processes wanted to run.

    Both counters are sums over the cores, so the numbers of cores and ranks do not matter.
    """
    throttled_s = after.throttled - before.throttled
    return share(throttled_s, after.used - before.used + throttled_s)


def read_cpu_use(root: Path = Path("/")) -> dict[Path, CpuUse]:
    """Return the CPU use of each group that can have a quota, by its directory."""
    groups = group_directories("cpu", root)
    if groups:
        # The controller cpuacct has the same groups, and usually the same directories.
        accounts = group_directories("cpuacct", root)
        uses = {group: _version_1(group, at) for group, at in zip(groups, accounts, strict=False)}
    else:
        uses = {group: _version_2(group) for group in group_directories("", root)}
    return {group: use for group, use in uses.items() if use is not None}


def _version_1(group: Path, account: Path) -> CpuUse | None:
    try:
        throttled_ns = _fields(group / "cpu.stat")["throttled_time"]
        used_ns = int((account / "cpuacct.usage").read_text(encoding="utf-8"))
    except (OSError, KeyError):
        return None
    return CpuUse(used=used_ns / 1e9, throttled=throttled_ns / 1e9)


def _version_2(group: Path) -> CpuUse | None:
    try:
        fields = _fields(group / "cpu.stat")
        return CpuUse(used=fields["usage_usec"] / 1e6, throttled=fields["throttled_usec"] / 1e6)
    except (OSError, KeyError):  # KeyError: a group without the CPU controller has no quota
        return None


def _fields(path: Path) -> dict[str, int]:
    """Return the fields of a file with lines such as ``usage_usec 123``."""
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {name: int(value) for name, value in rows}


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the lowest CPU quota of the own group and those above it, in cores, or None."""
    if directories := group_directories("cpu", root):
        limits = [
            (_word(group / "cpu.cfs_quota_us"), _word(group / "cpu.cfs_period_us"))
            for group in directories
        ]
    else:
        limits = [
            (_word(group / "cpu.max"), _word(group / "cpu.max", 1))
            for group in group_directories("", root)
        ]
    # Without a limit the quota is "max", or -1.
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
    """Return a word of a file's first line, or an empty one if there is none."""
    try:
        return path.read_text(encoding="utf-8").split()[position]
    except (OSError, IndexError):
        return ""


def read_memory_stall_s(root: Path = Path("/")) -> float | None:
    """Return the seconds so far in which some process of the own group waited for memory.

    If the kernel does not count that for groups, the figure is that of the whole machine. None: it
    is not counted at all.
    """
    own = group_directories("", root)[:1]
    for file in (*(group / "memory.pressure" for group in own), root / "proc/pressure/memory"):
        try:
            text = file.read_text(encoding="utf-8")
        except OSError:  # no such file, or the kernel is configured not to count it
            continue
        if match := re.search(r"^some .*\btotal=(\d+)", text, flags=re.MULTILINE):
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
        number, controllers, path = line.split(":", 2)
        if (controller in controllers.split(",")) if controller else number == "0":
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
        if controller:
            found = filesystem == "cgroup" and controller in options.split(",")
        else:
            found = filesystem == "cgroup2"
        if found:
            mounted, directory = place.split(" ")[3:5]
            return PurePosixPath(mounted), PurePosixPath(directory)
    return None
