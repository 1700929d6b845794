"""The probe: further steps after the timed ones, to measure the terms of a step."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup, Work
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankPhases, RankProbe
from ddp_perf.core.launch import Collective, Structure
from ddp_perf.torch_compat import TorchDispatchMode, has_smaller_groups, uncompiled
from ddp_perf.torch_compat.internals import BUFFER_BROADCAST, ISSUING_METHODS, set_ddp_rate
from ddp_perf.worker.counting.structure import ddp_logging
from ddp_perf.worker.script.hooks import patched
from ddp_perf.worker.steps.collective import CALLS
from ddp_perf.worker.steps.protocol import StepPlan, Training
from ddp_perf.worker.timing.clock import all_agree, allocator_retries, has_memory, step_clock

# The collectives of a step without its computation, one after the other.


_ALIGNMENT = 16  # bytes: the size of the widest element


def communication_s(
    case: Case,
    collectives: Sequence[Collective],
    beat: Callable[[], None],
    device: torch.device,
    rounds: int,
) -> tuple[float, ...]:
    """Repeat the collectives of a step and return the seconds of each of ``rounds`` repetitions.

    Return an empty tuple if a collective is not of all ranks on this device, if the ranks have
    different collectives, or if there is not enough memory. Collective.
    """
    most = _ALIGNMENT * math.ceil(max((c.bytes for c in collectives), default=0) / _ALIGNMENT)
    can = _can_repeat(case, collectives) and has_memory(2 * most, device)
    if not all_agree(can, device, key=zlib.crc32(repr(collectives).encode())):
        return ()
    calls = _calls(collectives, torch.zeros(2, most, dtype=torch.uint8, device=device))
    for call in calls:
        call()
    clock = step_clock(device, rounds + 1)
    dist.barrier()
    clock.mark()
    for _ in range(rounds):
        for call in calls:
            call()
        clock.mark()
        beat()
    return tuple(clock.intervals_s(beat))


def _can_repeat(case: Case, collectives: Sequence[Collective]) -> bool:
    of_groups = case.group_size is not None or case.replicates
    if case.script is not None:
        of_groups = has_smaller_groups()  # it does not state which collectives are of them
    offloaded = case.training.fsdp is not None and case.training.fsdp.cpu_offload
    return not (of_groups or offloaded) and all(
        c.kind in CALLS and isinstance(getattr(torch, c.dtype, None), torch.dtype)
        for c in collectives
    )


def _calls(collectives: Sequence[Collective], memory: torch.Tensor) -> list[Callable[[], object]]:
    """Return the calls. All use the same memory: a sharded model may leave no room for more."""
    calls: list[Callable[[], object]] = []
    for collective in collectives:
        dtype: torch.dtype = getattr(torch, collective.dtype)
        count = collective.bytes // dtype.itemsize
        whole, own = memory[0].view(dtype)[:count], memory[1].view(dtype)[:count]
        share = own[: count // dist.get_world_size()]
        calls.append(functools.partial(CALLS[collective.kind], whole, share))
    return calls


# Reads of device values by the host, and its other waits. With each of them its lead ends.


_WARNING = "called a synchronizing CUDA operation"  # of torch's debug mode


class HostReads(NamedTuple):
    """The reads of a step on the host."""

    values: int  # of the device, as .item() reads them
    waits: int | None  # of the host for its GPU, also for other reasons; None: it has no GPU


def count_host_reads(
    training: Training, device: torch.device, *, of_optimizer: bool = False
) -> StepPlan[HostReads]:
    """Count the values of the device that the next step reads on the host, and its waits.

    The reads of phase "optimizer" are left out unless ``of_optimizer``: on a CPU the optimizer
    reads its own step count.
    """
    counter = _ReadCounter(device, of_optimizer=of_optimizer)
    observed = training.observe(counter.end_phase)
    with _noted_waits(device) as waits, observed, uncompiled(), counter:
        yield
    return HostReads(counter.count, None if waits is None else len(waits))


@contextlib.contextmanager
def _noted_waits(device: torch.device) -> Iterator[list[str] | None]:
    """Note each wait of the host for its GPU in the ``with`` block; None if it has no GPU.

    Torch warns of copies to the host, ``nonzero`` and masks, and of a synchronised stream. It does
    not warn of a synchronised device or event.
    """
    if device.type != "cuda":
        yield None
        return
    waits: list[str] = []

    def note(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        waits.append(original.__name__)
        return original(*args, **kwargs)

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=_WARNING)
        show = warnings.showwarning

        def show_others(message: Warning | str, *args: Any, **kwargs: Any) -> None:
            if _WARNING in str(message):
                waits.append("warned")
            else:
                show(message, *args, **kwargs)

        warnings.showwarning = show_others
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with (
                patched(torch.cuda, "synchronize", note),
                patched(torch.cuda.Event, "synchronize", note),
            ):
                yield waits
        finally:
            torch.cuda.set_sync_debug_mode(mode)


class _ReadCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, device: torch.device, *, of_optimizer: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._of_optimizer = of_optimizer
        self.count = 0
        self._device = device
        self._in_phase = 0

    def end_phase(self, phase: str) -> None:
        """Add the reads of the phase that ended, unless they are left out."""
        if phase != "optimizer" or self._of_optimizer:
            self.count += self._in_phase
        self._in_phase = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self._in_phase += int(args[0].device == self._device)
        return func(*args, **(kwargs or {}))


# Observation of the calls in which Python code waits for communication.
#
# Work and futures have ``wait``. From torch 2.8 on NCCL returns no work for a synchronous call: the
# call itself waits then. DDP broadcasts its buffers and waits for them in C++, within one Python
# method, which is observed. DDP waits for its gradient buckets in C++ only: those waits are not
# observed.


Note = Callable[[bool], None]  # its argument: whether the time before the call was a wait


@contextlib.contextmanager
def note_waits(module: nn.Module, note: Note) -> Iterator[None]:
    """Call ``note(False)`` before each wait and ``note(True)`` after it, in the ``with`` block.

    A call that turns out not to have waited ends with ``note(False)``.
    """
    with contextlib.ExitStack() as stack:
        for owner in (Work, torch.futures.Future):
            stack.enter_context(_patched(owner, "wait", note, lambda done: True))
        for name in ISSUING_METHODS:
            if hasattr(ProcessGroup, name):
                stack.enter_context(_patched(ProcessGroup, name, note, lambda work: work is None))
        if isinstance(module, DistributedDataParallel):
            stack.enter_context(_patched(module, BUFFER_BROADCAST, note, lambda done: True))
        yield


@contextlib.contextmanager
def _patched(owner: Any, name: str, note: Note, waited: Callable[[Any], bool]) -> Iterator[None]:
    """Patch one method. ``waited(returned value)`` decides whether a call was a wait."""
    own = vars(owner).get(name)  # getattr of a pybind11 class gives a method that binds no instance
    call = getattr(owner, name)

    @functools.wraps(call)
    def noted(*args: Any, **kwargs: Any) -> Any:
        note(False)
        done = call(*args, **kwargs)
        note(waited(done))
        return done

    setattr(owner, name, noted)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


# The phases of a step by the device's own clock, with waits for communication as a phase.


BETWEEN = "between"  # not part of any step
WAITING = "waiting"


class Interval(NamedTuple):
    """The time between two marks, in seconds."""

    phase: str
    wall_s: float
    thread_s: float  # CPU time of the main thread
    process_s: float  # CPU time of all threads, including those that communicate


class PhaseClock:
    """A clock of phases: call ``start`` once, and ``mark(phase)`` at the end of each phase."""

    def __init__(self, device: torch.device) -> None:
        self._clock = step_clock(device, 0)
        self._thread_ns: list[int] = []
        self._process_ns: list[int] = []
        self._phases: list[str | None] = []  # None: part of the phase that the next mark names
        self._named = 0  # intervals that a mark has named

    def start(self) -> None:
        """Begin the first phase."""
        self._read()

    def mark(self, phase: str) -> None:
        """End ``phase``: it began at the mark before, waits excluded."""
        self._note(phase)
        for place in range(self._named, len(self._phases)):
            self._phases[place] = self._phases[place] or phase
        self._named = len(self._phases)

    def separate_waits(self, module: nn.Module) -> AbstractContextManager[None]:
        """Count waits of Python code for communication as phase WAITING, in the ``with`` block."""
        return note_waits(module, lambda waited: self._note(WAITING if waited else None))

    def intervals(self) -> list[Interval]:
        """Return all marked intervals in order. Waits for the device."""
        walls = self._clock.intervals_s(lambda: None)
        cpus = [
            [(end - start) / 1e9 for start, end in itertools.pairwise(times)]
            for times in (self._thread_ns, self._process_ns)
        ]
        phases = [phase or BETWEEN for phase in self._phases]
        return [Interval(*row) for row in zip(phases, walls, *cpus, strict=True)]

    def _note(self, phase: str | None) -> None:
        self._read()
        self._phases.append(phase)

    def _read(self) -> None:
        self._clock.mark()
        self._thread_ns.append(time.thread_time_ns())
        self._process_ns.append(time.process_time_ns())


# The probe: further steps after the timed ones, to measure the terms of a step.
#
# It has three runs: the step as it is; the step without synchronising gradients; the collectives
# without the step.


_PREFETCHED = 3  # batches that a worker of a DataLoader may have ready: 2, and one half done
_DDP_RATE = 100  # steps: DDP times one in this many by default
_PHASES = ("data", "forward", "backward", "optimizer")


def probe(
    case: Case,
    training: Training,
    structure: Structure,
    device: torch.device,
    steps: int,
) -> StepPlan[RankProbe]:
    """Measure ``steps`` steps in each of the three runs.

    Afterwards the parameters differ by rank. Collective.
    """
    before = allocator_retries(device)
    rows, exposed = yield from _synchronised(training, device, steps)
    retries = allocator_retries(device) - before
    # That phase of a script begins after the backward, where a GradScaler reads.
    of_optimizer = case.script is not None and device.type == "cuda"
    reads = yield from count_host_reads(training, device, of_optimizer=of_optimizer)
    communication = communication_s(case, structure.collectives, training.beat, device, steps)
    unsynchronised = yield from _unsynchronised(training, structure, device, steps)
    # The CPU time of the host does not show the phases of a GPU. With several threads it does
    # not show which of them was idle.
    measures_idle = case.tier == "cpu" and case.threads_per_rank == 1
    idle = [_idle_s(row, "backward") if measures_idle else 0.0 for row in unsynchronised]
    return RankProbe(
        phases=_as_phases(rows, exposed, measures_idle=measures_idle),
        backward_cpu=_of_phase(rows, "backward", "process_s") if measures_idle else (),
        unsynchronised_backward=_minus(_of_phase(unsynchronised, "backward"), idle),
        unsynchronised_idle=tuple(idle),
        communication=communication,
        host_reads=reads.values,
        host_waits=reads.waits,
        allocator_retries=retries / (steps + 1),  # _synchronised runs one more
        emulated_ranks=None if case.network is None else case.world_size,
        sees_communication=training.strategy != "fsdp" or device.type == "cpu",
    )


def drain_loaders(case: Case) -> StepPlan[None]:
    """Train on the batches that the loaders prepared while no step was running."""
    for _ in range(_PREFETCHED * (case.training.data.num_workers or 0)):
        yield


def _synchronised(
    training: Training, device: torch.device, steps: int
) -> StepPlan[tuple[list[list[Interval]], list[float]]]:
    """Return the intervals of each step, and the seconds of its exposed communication.

    DDP reports a step's communication when the next step begins, so one more step is run.
    """
    exposed: list[float] = []
    with _ddp_times_each_step(training.module):
        rows = yield from _rows_of_steps(
            training,
            device,
            steps + 1,
            after_step=lambda: exposed.append(_exposed_s(training.module)),
        )
    return rows[:-1], exposed[1:]


@contextlib.contextmanager
def _ddp_times_each_step(module: nn.Module) -> Iterator[None]:
    """Let DDP time its communication in each step of the ``with`` block, not in one of a hundred.

    On a GPU this makes the host wait for the step before, so the host's own work takes a larger
    share of these steps than of the timed ones.
    """
    if not isinstance(module, DistributedDataParallel):
        yield
        return
    set_ddp_rate(module, 1)
    try:
        yield
    finally:
        set_ddp_rate(module, _DDP_RATE)


def _unsynchronised(
    training: Training, structure: Structure, device: torch.device, steps: int
) -> StepPlan[list[list[Interval]]]:
    """Return the intervals of each step without synchronised gradients; empty if it cannot run.

    It runs for DDP only. In FSDP the step would not be the same one: whole gradients need memory
    that a sharded model may not leave free.
    """
    if training.strategy != "ddp" or not all_agree(
        has_memory(structure.gradient_bytes, device), device
    ):
        return []
    with training.unsynchronised():
        return (yield from _rows_of_steps(training, device, steps))


def _as_phases(
    rows: Sequence[Sequence[Interval]], exposed: Sequence[float], *, measures_idle: bool
) -> RankPhases:
    walls = {phase: _of_phase(rows, phase) for phase in (*_PHASES, WAITING)}
    walls["backward"] = _minus(walls["backward"], exposed)
    idle = [0.0] * len(rows)
    if measures_idle:
        for phase in ("forward", "optimizer"):
            idle_in_phase = [_idle_s(row, phase) for row in rows]
            walls[phase] = _minus(walls[phase], idle_in_phase)
            idle = [a + b for a, b in zip(idle, idle_in_phase, strict=True)]
    return RankPhases(**walls, exposed=tuple(exposed), idle=tuple(idle))


def _idle_s(row: Iterable[Interval], phase: str) -> float:
    """Return the seconds in which the CPU was idle in a phase that gives it no reason to be."""
    of_phase = [interval for interval in row if interval.phase == phase]
    return max(0.0, sum(interval.wall_s - interval.thread_s for interval in of_phase))


def _of_phase(
    rows: Iterable[Iterable[Interval]], phase: str, figure: str = "wall_s"
) -> tuple[float, ...]:
    """Return the seconds of each step in the phase, by wall clock or another ``figure``."""
    return tuple(sum(getattr(i, figure) for i in row if i.phase == phase) for row in rows)


def _minus(whole: Iterable[float], part: Iterable[float]) -> tuple[float, ...]:
    return tuple(a - b for a, b in zip(whole, part, strict=True))


def _rows_of_steps(
    training: Training,
    device: torch.device,
    steps: int,
    *,
    after_step: Callable[[], None] = lambda: None,
) -> StepPlan[list[list[Interval]]]:
    """Run steps, each followed by ``after_step``, and return the intervals of each."""
    clock = PhaseClock(device)
    dist.barrier()
    clock.start()
    with training.observe(clock.mark), clock.separate_waits(training.module):
        for _ in range(steps):
            yield
            after_step()
            clock.mark(BETWEEN)
    rows: list[list[Interval]] = [[]]
    for interval in clock.intervals():
        if interval.phase == BETWEEN:
            rows.append([])
        else:
            rows[-1].append(interval)
    return rows[:-1]


def _exposed_s(module: nn.Module) -> float:
    """Return the exposed communication of the newest step that DDP has timed, in seconds.

    It lasts from the last gradient to the last reduced bucket. It is 0 if DDP times no step, as
    with FSDP: the backward then includes that time.
    """
    times = ddp_logging(module)
    communication = int(times.get("backward_comm_time", 0))
    return (communication - int(times.get("backward_compute_comm_overlap_time", 0))) / 1e9
