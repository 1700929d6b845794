"""Faults of ranks: each is played in one rank of a launch, and what the user sees is noted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.launch.engine import Engine
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.builders import make_request
from tests.faults.leaks import leaked, present
from tests.faults.matrix import Tried

WORKLOADS = Path(__file__).parents[1] / "system/workloads"
_MEMORY = Path("/sys/fs/cgroup/memory")
SMALL_GROUP = _MEMORY / "ddp-perf-faulty"  # of faulty.py
_SMALL = 2**28
_LONGEST_SEEN = 200  # characters
# A busy machine has more timed steps, until enough are clean: the probe is longer than they.
_AFTER = 400
_PROBE_STEPS = 500
MOMENTS = {"at the first step": 1, "in the middle": 8, "after the timed steps": _AFTER}


class RankFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a rank, by its name in workloads/faulty.py, and what must be said of it."""

    name: str
    words: str  # for the user
    kind: str
    said: str


FAULTS = tuple(
    RankFault(name=name, words=words, kind=kind, said=said)
    for name, words, kind, said in (
        ("raise", "a rank raises an error", "exception", "ValueError: the data are broken"),
        ("long-error", "a rank raises an error of 10 MB", "exception", "ValueError: broken data"),
        ("exit-0", "a rank exits with code 0", "exit", "exited with code 0 before it delivered"),
        ("os-exit", "a rank exits with code 3", "exit", "exited with code 3"),
        ("kill", "SIGKILL of a rank", "signal", "killed by SIGKILL"),
        ("segfault", "SIGSEGV in a rank", "signal", "killed by SIGSEGV"),
        ("stop", "SIGSTOP of a rank", "hang", "the process is stopped (T)"),
        ("loop", "an endless loop in Python", "hang", "the process is running (R)"),
        (
            "loop-in-c",
            "a wait in C that keeps Python's lock",
            "hang",
            "the process is sleeping (S)",
        ),
        ("hang", "a rank waits for ever", "hang", "the process is sleeping (S)"),
        ("skip-collective", "a rank waits in another collective", "hang", "is sleeping (S)"),
        ("out-of-memory", "a rank takes too much memory", "signal", "killed by SIGKILL"),
        ("out-of-descriptors", "a rank opens too many files", "exception", "Too many open files"),
        ("out-of-space", "a rank fills /dev/shm", "exception", "File too large"),
        ("flood", "a rank prints 1 GB", "exception", "ValueError: the data are broken"),
        ("daemon", "a rank leaves a daemon", "exception", "ValueError: the data are broken"),
    )
)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where launches run: warm servers, and what was there when they were warm."""

    name: str
    launcher: ServerLauncher
    ranks: int
    before: frozenset[str]


@contextlib.contextmanager
def place(name: str, engine: Engine, *, ranks: int) -> Iterator[Place]:
    with contextlib.closing(ServerLauncher(engine)) as launcher:
        launch(launcher, "nothing", ranks=ranks, at_step=1)
        yield Place(name=name, launcher=launcher, ranks=ranks, before=present())


def play(fault: RankFault, moment: str, place: Place) -> Tried:
    """Play a fault, and launch again on the same servers."""
    at_step = MOMENTS[moment]
    began = time.monotonic()
    # A fault that ends a rank needs no deadline, which a busy machine may miss.
    deadline_s = 2.0 if fault.kind == "hang" else 60.0
    with _small_group(fault):
        outcome = launch(
            place.launcher, fault.name, ranks=place.ranks, at_step=at_step, deadline_s=deadline_s
        )
    noticed_s = time.monotonic() - began
    after = launch(place.launcher, "nothing", ranks=place.ranks, at_step=1)
    seen = _seen(outcome)
    return Tried(
        fault=fault.words,
        where=f"{moment}, {place.ranks} ranks, {place.name}",
        seen=seen.splitlines()[0][:_LONGEST_SEEN],
        kept="the times" if isinstance(outcome, LaunchResult) else "the servers",
        survived=_is_named(fault, moment, outcome, seen) and isinstance(after, LaunchResult),
        leaked=leaked(place.before),
        noticed_s=noticed_s,
    )


def _is_named(
    fault: RankFault, moment: str, outcome: LaunchFailure | LaunchResult, seen: str
) -> bool:
    if isinstance(outcome, LaunchFailure):
        return fault.said in seen and outcome.kind == fault.kind and outcome.rank == 1
    # The times are there; what could not be examined says why.
    said = "the examination hung" if fault.kind == "hang" else fault.said
    return MOMENTS[moment] == _AFTER and said in seen


def _seen(outcome: LaunchFailure | LaunchResult) -> str:
    if isinstance(outcome, LaunchFailure):
        return str(outcome)
    return "; ".join(dict.fromkeys(why for one in outcome.ranks for why in one.missing.values()))


def small_group_obstacle() -> str | None:
    """Return why no group with little memory can be made here; None: it can be."""
    try:
        SMALL_GROUP.mkdir()
    except OSError as error:
        return f"{SMALL_GROUP} cannot be made: {error.strerror}"
    SMALL_GROUP.rmdir()
    return None


@contextlib.contextmanager
def _small_group(fault: RankFault) -> Iterator[None]:
    if fault.name != "out-of-memory":
        yield
        return
    SMALL_GROUP.mkdir()
    try:
        (SMALL_GROUP / "memory.limit_in_bytes").write_text(str(_SMALL), encoding="utf-8")
        yield
    finally:
        SMALL_GROUP.rmdir()


def launch(
    launcher: ServerLauncher, fault: str, *, ranks: int, at_step: int, deadline_s: float = 60.0
) -> LaunchFailure | LaunchResult:
    request = make_request(
        "faulty:build",
        WORKLOADS,
        model={"fault": fault, "at_step": at_step},
        world_sizes=[ranks],
        start_deadline_s=3 * deadline_s if at_step == 1 else 60.0,
        step_deadline_s=deadline_s,
    )
    case = msgspec.structs.replace(request.case, nodes=len(launcher.nodes(request.case)) or 1)
    probe_steps = _PROBE_STEPS if at_step == _AFTER else request.probe_steps
    return launcher.launch(msgspec.structs.replace(request, case=case, probe_steps=probe_steps))
