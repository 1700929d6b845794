"""The conditions of a rank between two samples: what disturbed it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ddp_perf.core.gpu import HARDWARE_SLOWDOWNS, GpuLoad
from ddp_perf.core.launch import RankConditions, share
from ddp_perf.system.host.control_group import CpuUse
from ddp_perf.system.host.processes import CoreTimes
from ddp_perf.telemetry.sample import SHORTEST_S, Sample, waited_for_memory

_FULL = 0.9  # of the memory limit: the rest is the kernel's, and files that it keeps


def conditions(
    before: Sample, after: Sample, *, pinned: bool, load: GpuLoad | None = None
) -> RankConditions:
    """Return the conditions of one rank between two samples.

    ``pinned``: no other rank uses its cores. ``load`` was read while its GPU ran the last steps:
    idle, it has its full clock again. What the ranks use themselves of a quota and of the memory is
    the cost of their step; only the rest is a disturbance.
    """
    wall_s = after.at_s - before.at_s
    cores = _cores(before, after)
    groups = _groups(before, after)
    quota, own_quota = _quota(groups, _family_s(before, after))
    waited = waited_for_memory(before, after)
    is_own = after.memory_filled is not None and after.memory_filled >= _FULL
    heat_s = errors = None
    if before.gpu is not None and after.gpu is not None:
        heat_s = increase(before.gpu.heat_s, after.gpu.heat_s)
        errors = increase(before.gpu.ecc_uncorrected, after.gpu.ecc_uncorrected)
    heat_events = increase(before.heat_events, after.heat_events)
    return RankConditions(
        stolen=_stolen(cores, wall_s),
        foreign=_foreign(cores, groups, before, after, pinned=pinned),
        slow_clock=_slow_clock(before, after),
        overheated=None if heat_events is None else heat_events > 0,
        quota=quota,
        own_quota=own_quota,
        memory=0.0 if is_own else waited,
        own_memory=waited if is_own else None,
        gpu_heat=None if heat_s is None else share(heat_s, wall_s),
        gpu_slowed=_slowed(load),
        gpu_shared=_shared(before.gpu_processes, after.gpu_processes),
        gpu_errors=None if errors is None else errors > 0,
    )


def increase(before: float | None, after: float | None) -> float | None:
    """Return the increase of a counter, or None if one of its readings is unknown."""
    return None if before is None or after is None else after - before


def _cores(before: Sample, after: Sample) -> list[CoreTimes]:
    """Return the times of each core in between; empty: too short for ticks, or nothing counted."""
    cores = [
        times.since(before.cores[core])
        for core, times in after.cores.items()
        if core in before.cores
    ]
    is_counted = any(times.total > 0 for times in cores)  # False in some containers
    return cores if is_counted and after.at_s - before.at_s >= SHORTEST_S else []


def _groups(before: Sample, after: Sample) -> list[CpuUse]:
    """Return the CPU use in between of the own control group and of each group above it."""
    return [
        CpuUse(used=use.used - earlier.used, throttled=use.throttled - earlier.throttled)
        for group, use in after.group_uses.items()
        if (earlier := before.group_uses.get(group)) is not None
    ]


def _family_s(before: Sample, after: Sample) -> float | None:
    """Return the CPU time of all ranks and their children; None: unknown, or a few ticks."""
    if before.family_cpu is None or after.family_cpu is None:
        return None
    if after.at_s - before.at_s < SHORTEST_S:
        return None
    return after.family_cpu.total - before.family_cpu.total


def _quota(groups: Sequence[CpuUse], family_s: float | None) -> tuple[float | None, float | None]:
    """Return the shares of the wanted CPU time that a quota denied by others' use, and by own use.

    Each is the largest of the own group and the groups above it; None: unknown. Used and denied
    time are sums over the cores, so the numbers of cores and ranks do not matter. What others used
    is all that the ranks could have had instead, so no more than that share is the others' doing.
    If nobody knows who used a quota, it counts as others' use.
    """
    if not groups:
        return None, None
    denied = [share(group.throttled, group.used + group.throttled) for group in groups]
    if family_s is None:
        return max(denied), None
    by_others = max(
        min(part, share(group.used - family_s, group.used))
        for part, group in zip(denied, groups, strict=True)
    )
    return by_others, max(denied) - by_others


def _stolen(cores: Sequence[CoreTimes], wall_s: float) -> float | None:
    """Return the steal time as a share of the time in which the cores were wanted.

    The whole time of one core is used instead if it is longer. Otherwise a core that is idle
    nearly all the time could lose all of the little time that it wanted.
    """
    if not cores:
        return None
    wanted_s = sum(wall_s - times.idle for times in cores)
    return share(sum(times.stolen for times in cores), max(wanted_s, wall_s))


def _foreign(
    cores: Sequence[CoreTimes],
    groups: Collection[CpuUse],
    before: Sample,
    after: Sample,
    *,
    pinned: bool,
) -> float | None:
    """Return the CPU contention: the share of the time in which others had the rank's core.

    Neither the time of others nor the waits of the rank are enough alone. Others may use the time
    that the rank leaves idle. And a rank also waits for a core if its own threads or workers use
    it, which is no disturbance. For pinned cores the result is the smaller of the two.

    The waits of all threads are added, since threads wait for each other as well. For a DDP step
    over gloo that lost 43 % of its time to others, the sum gives 46 % and the longest wait 23 %.

    While a quota holds the rank back, others may use its core and take nothing from it. This time
    is left out of theirs, as far as the core was not idle. It is estimated from the rank's CPU
    time, as if the quota held all processes of the group back alike.

    For a rank that may run anywhere, its waits are multiplied by the others' share of all cores.
    """
    waits_s = [wait_s - before.waits_s.get(id_, 0.0) for id_, wait_s in after.waits_s.items()]
    if not cores or not waits_s or before.family_cpu is None or after.family_cpu is None:
        return None
    wall_s = after.at_s - before.at_s
    # Interrupts are left out: most kernels also count them for the interrupted process.
    used_s = sum(wall_s - times.idle - times.stolen - times.interrupts for times in cores)
    family_s = after.family_cpu.on_cores - before.family_cpu.on_cores
    held_back = [group.throttled / group.used for group in groups if group.used > 0]
    held_back_s = family_s * max([0.0, *held_back])
    others_s = used_s - family_s - max(0.0, held_back_s - sum(times.idle for times in cores))
    if pinned:
        return share(min(others_s, sum(waits_s)), wall_s)
    return share(sum(waits_s), wall_s) * share(others_s, len(cores) * wall_s)


def _slow_clock(before: Sample, after: Sample) -> float | None:
    """Return 1 − clock ÷ base frequency, at the faster of both moments.

    So one slow moment is ignored.
    """
    if before.clock_ratio is None or after.clock_ratio is None:
        return None
    return max(0.0, 1 - max(before.clock_ratio, after.clock_ratio))


def _slowed(load: GpuLoad | None) -> bool | None:
    """Return whether hardware reduced the clocks in the last steps, by more than a power cap.

    What software heat costs, the clock under load shows.
    """
    if load is None or load.throttle is None:
        return None
    return not HARDWARE_SLOWDOWNS.isdisjoint(load.throttle)


def _shared(before: int | None, after: int | None) -> bool | None:
    """Return whether several processes computed on the GPU at either moment.

    The rank itself computes on the GPU at both moments. So if NVML lists no process, a container
    hides the processes. The pid of the rank does not help: a container has its own pids.
    """
    most = max(before or 0, after or 0)
    return most > 1 if most else None
