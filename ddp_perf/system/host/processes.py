"""Processes, threads and cores: their times and clocks, read from /proc and /sys."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from ddp_perf.system.host.kernel_files import number_of, text_of

# Most times in /proc are in ticks, usually of 10 ms. Windows has neither.
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class CoreTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one core since boot, in seconds.

    The time that a core worked is best computed from its idle time. Kernels that let an idle core
    sleep (CONFIG_NO_HZ) measure idle time at each change. The time of programs is sampled at
    ticks, with an error of several per cent of a second.
    """

    total: float  # with the sampled time of programs; it is constant if nothing is counted
    idle: float
    interrupts: float
    stolen: float  # steal time: the hypervisor gave it to another machine

    def since(self, before: CoreTimes) -> CoreTimes:
        """Return the times after ``before``, an earlier reading of this core."""
        return CoreTimes(
            total=self.total - before.total,
            idle=self.idle - before.idle,
            interrupts=self.interrupts - before.interrupts,
            stolen=self.stolen - before.stolen,
        )


def read_core_times(root: Path = Path("/")) -> dict[int, CoreTimes]:
    """Return the times by core, or {} if the kernel does not report them.

    The lines of /proc/stat are such as ``cpu0 user nice system idle iowait irq softirq steal …``.
    """
    cores = {}
    for line in (text_of(root / "proc/stat") or "").splitlines():
        name, *fields = line.split() or [""]
        number = name.removeprefix("cpu")
        if name.startswith("cpu") and number.isdecimal() and len(fields) >= 8:
            ticks = [int(field) for field in fields[:8]]  # a guest's are in "user" already
            _, _, _, idle, iowait, irq, softirq, steal = ticks
            cores[int(number)] = CoreTimes(
                total=sum(ticks) / TICKS_PER_S,
                idle=(idle + iowait) / TICKS_PER_S,
                interrupts=(irq + softirq) / TICKS_PER_S,
                stolen=steal / TICKS_PER_S,
            )
    return cores


# The name of a process that stands in for another program: it belongs to no family of ranks.
STRANGER = "ddp-stranger"

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in an uninterruptible wait",
    "T": "stopped",
    "t": "stopped by a tracer",
    "Z": "a zombie",
    "X": "dead",
}


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process at one moment."""

    name: str
    state: str  # one letter, as ``ps`` shows it
    cpu_s: float  # so far, of its threads and of the children that it has waited for


def read_process(pid: int) -> Process | None:
    """Return the process, or None if it has ended."""
    text = text_of(Path(f"/proc/{pid}/stat"))
    if text is None:
        return None
    head, _, tail = text.rpartition(")")  # a name may contain anything, also ")"
    fields = tail.split()
    return Process(
        name=head.partition("(")[2],
        state=fields[0],
        cpu_s=sum(map(int, fields[11:15])) / TICKS_PER_S,
    )


def state_of(pid: int) -> str | None:
    """Return the one-letter state of a process ("T": stopped), or None if it has ended."""
    process = read_process(pid)
    return process.state if process else None


def describe_state(state: str | None) -> str:
    """Return the state in words, with the letter that ``ps`` shows."""
    if state is None:
        return "gone"
    return f"{_STATES.get(state, 'in an unknown state')} ({state})"


class FamilyCpu(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds of a family so far."""

    on_cores: float  # of the descendants that may run on at least one of some cores
    total: float  # of all descendants


def family_cpu(parent: int, cores: Collection[int]) -> FamilyCpu | None:
    """Return the CPU time of the descendants of ``parent``: of those on ``cores``, and of all.

    None: the kernel does not list the children of a process.
    """
    if not _lists_children():
        return None
    family = list(_family(parent))
    return FamilyCpu(
        on_cores=sum(p.cpu_s for pid, p in family if not _affinity(pid).isdisjoint(cores)),
        total=sum(process.cpu_s for _, process in family),
    )


def family_memory(parent: int) -> int | None:
    """Return the bytes in memory that ``parent`` and its descendants have; None: not counted.

    A page that several processes share counts once. The kernel walks through the page tables for
    it, which takes some ms for each GiB.
    """
    if not _lists_children():
        return None
    each = [_memory(pid) for pid in (parent, *(pid for pid, _ in _family(parent)))]
    known = [size for size in each if size is not None]
    return sum(known) if known else None


def _memory(pid: int) -> int | None:
    """Return the proportional set size (PSS) of a process in bytes; None: it ended, or unknown."""
    text = text_of(Path(f"/proc/{pid}/smaps_rollup")) or ""
    match = re.search(r"^Pss:\s+(\d+) kB$", text, flags=re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _lists_children() -> bool:
    return Path("/proc/thread-self/children").exists()


def _family(parent: int) -> Iterator[tuple[int, Process]]:
    """Yield the descendants of ``parent``, without strangers and their descendants."""
    for pid in children_of(parent):
        process = read_process(pid)
        if process is not None and process.name != STRANGER:
            yield pid, process
            yield from _family(pid)


def children_of(pid: int) -> Iterator[int]:
    """Yield the children of a process; none if the kernel does not list them."""
    # A child is listed at the thread that started it.
    for text in _thread_files(pid, "children").values():
        yield from map(int, text.split())


def _affinity(pid: int) -> set[int]:
    try:
        return os.sched_getaffinity(pid)
    except ProcessLookupError:
        return set()


def _thread_files(pid: int | str, name: str) -> dict[int, str]:
    """Return a file's text of every thread of a process that still runs, by thread id."""
    texts: dict[int, str] = {}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if (text := text_of(thread / name)) is not None:
                texts[int(thread.name)] = text
    return texts


def thread_waits_s() -> dict[int, float]:
    """Return for each thread of this process the seconds in which it was ready but had no core.

    The keys are thread ids. The result is empty if the kernel does not count these times.
    """
    waits = {id_: parse_wait_s(text) for id_, text in _thread_files("self", "schedstat").items()}
    return {id_: wait_s for id_, wait_s in waits.items() if wait_s is not None}


def parse_wait_s(text: str) -> float | None:
    """Return the wait for a core in seconds from ``/proc/…/schedstat``; None: not counted.

    The file contains the nanoseconds on a core, the nanoseconds of waiting for one, and the number
    of times on a core. All three are 0 if the kernel does not count them.
    """
    _, waited_ns, times = map(int, text.split())
    return waited_ns / 1e9 if times else None


def thread_count() -> int:
    """Return the number of threads of this process, with those that Python did not start."""
    return len(os.listdir("/proc/self/task"))


_THROTTLE_COUNTS = ("core_throttle_count", "package_throttle_count")
_KHZ_PER_MHZ = 1000


def heat_events(cores: Iterable[int], root: Path = Path("/")) -> int | None:
    """Return how often heat throttled the cores or their packages since boot; None: unknown.

    Most virtual machines report neither this nor clocks.
    """
    counts = [
        number_of(_directory(core, root) / "thermal_throttle" / name)
        for core in cores
        for name in _THROTTLE_COUNTS
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def clock_ratio(cores: Iterable[int], root: Path = Path("/")) -> float | None:
    """Return the largest clock ÷ base frequency of the cores (1.3: turbo); None: unknown."""
    ratios = [_clock_ratio(_directory(core, root)) for core in cores]
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def _clock_ratio(core: Path) -> float | None:
    clock_khz = number_of(core / "cpufreq" / "scaling_cur_freq")
    base_khz = number_of(core / "cpufreq" / "base_frequency")  # Intel's driver
    if base_khz is None and (base_mhz := number_of(core / "acpi_cppc" / "nominal_freq")):
        base_khz = base_mhz * _KHZ_PER_MHZ
    return clock_khz / base_khz if clock_khz and base_khz else None


def _directory(core: int, root: Path) -> Path:
    return root / f"sys/devices/system/cpu/cpu{core}"
