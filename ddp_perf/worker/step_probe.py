"""The probe: further steps after the timed ones, to measure the terms of a step.

It has three runs: the step as it is; the step without synchronising gradients; the collectives
without the step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankPhases, RankProbe
from ddp_perf.core.launch import Structure
from ddp_perf.torch_compat.internals import set_ddp_rate
from ddp_perf.worker.counting.structure import ddp_logging
from ddp_perf.worker.probe.communication import communication_s
from ddp_perf.worker.probe.host_reads import count_host_reads
from ddp_perf.worker.probe.phases import BETWEEN, WAITING, Interval, PhaseClock
from ddp_perf.worker.probe.preconditions import all_agree, allocator_retries, has_room
from ddp_perf.worker.steps.plan import StepPlan
from ddp_perf.worker.steps.protocol import Training

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
        sees_communication=training.strategy != "fsdp" or device.type == "cpu",
    )


def drain_loaders(case: Case) -> StepPlan[None]:
    """Train on the batches that the loaders prepared while no step was running."""
    for _ in range(_PREFETCHED * (case.data.num_workers or 0)):
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
        has_room(structure.gradient_bytes, device), device
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
