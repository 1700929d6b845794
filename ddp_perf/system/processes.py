"""What /proc says of a process."""

from __future__ import annotations

from pathlib import Path

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in an uninterruptible wait",
    "T": "stopped",
    "t": "stopped by a tracer",
    "Z": "a zombie",
    "X": "dead",
}


def state_of(pid: int) -> str | None:
    """The one-letter state of a process ("T": stopped), or None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[0]


def describe_state(state: str | None) -> str:
    """The state in words, with its letter as ``ps`` shows it."""
    if state is None:
        return "gone"
    return f"{_STATES.get(state, 'in an unknown state')} ({state})"


def thread_count() -> int:
    """Threads of this process, those that Python does not know of included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Threads:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/status has no line 'Threads:'")
