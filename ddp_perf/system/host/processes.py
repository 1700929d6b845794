"""What /proc says of processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from ddp_perf.system.host.core_times import TICKS_PER_S

STRANGER = "ddp-stranger"  # the name of a process that plays another's: it has no family

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
    cpu_s: float  # so far, of all its threads and of the children that it has waited for


def read_process(pid: int) -> Process | None:
    """None when it is gone."""
    try:
        # The kernel cuts a name to 15 bytes, maybe within a character.
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")  # a name may hold anything, ")" too
    fields = tail.split()
    return Process(
        name=head.partition("(")[2],
        state=fields[0],
        cpu_s=sum(map(int, fields[11:15])) / TICKS_PER_S,
    )


def state_of(pid: int) -> str | None:
    """The one-letter state of a process ("T": stopped), or None when it is gone."""
    process = read_process(pid)
    return process.state if process else None


def describe_state(state: str | None) -> str:
    """The state in words, with its letter as ``ps`` shows it."""
    if state is None:
        return "gone"
    return f"{_STATES.get(state, 'in an unknown state')} ({state})"


def family_cpu_s(parent: int, cores: Collection[int]) -> float | None:
    """CPU seconds so far of the processes below ``parent`` that may run on one of ``cores``.

    None where the kernel does not list a process's children.
    """
    if not Path("/proc/thread-self/children").exists():
        return None
    return sum(
        process.cpu_s for pid, process in _family(parent) if not _affinity(pid).isdisjoint(cores)
    )


def _family(parent: int) -> Iterator[tuple[int, Process]]:
    """All that descend from ``parent``, but no stranger."""
    for pid in _children(parent):
        process = read_process(pid)
        if process is not None and process.name != STRANGER:
            yield pid, process
            yield from _family(pid)


def _children(pid: int) -> Iterator[int]:
    for text in _of_threads(pid, "children").values():  # each with the thread that started it
        yield from map(int, text.split())


def _affinity(pid: int) -> set[int]:
    try:
        return os.sched_getaffinity(pid)
    except ProcessLookupError:
        return set()


def _of_threads(pid: int | str, name: str) -> dict[int, str]:
    """A file of every thread of a process, by thread id; without those that are gone."""
    texts = {}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                texts[int(thread.name)] = (thread / name).read_text(
                    encoding="utf-8", errors="replace"
                )
    return texts


def thread_waits_s() -> dict[int, float]:
    """Seconds so far that each thread of this process was ready to run and had no core, by
    thread id; empty where the kernel does not keep them.
    """
    waits = {id_: parse_wait_s(text) for id_, text in _of_threads("self", "schedstat").items()}
    return {id_: wait_s for id_, wait_s in waits.items() if wait_s is not None}


def parse_wait_s(text: str) -> float | None:
    """Of ``/proc/…/schedstat``: nanoseconds on a core, nanoseconds waiting for one, and how
    often it got one; three zeros where the kernel does not keep them.
    """
    _, waited_ns, times = map(int, text.split())
    return waited_ns / 1e9 if times else None


def thread_count() -> int:
    """Threads of this process, those that Python does not know of included."""
    for line in (
        Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    ):
        if line.startswith("Threads:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/status has no line 'Threads:'")
