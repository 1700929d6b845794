"""Where the time of a step goes: some more steps, run after all that is timed, and looked at.

Three runs that differ in one thing: the step as it is; the step without synchronising gradients;
the collectives without the step.
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
from ddp_perf.worker.counted.structure import ddp_logging
from ddp_perf.worker.probe.communication import communication_s
from ddp_perf.worker.probe.host_reads import count_host_reads
from ddp_perf.worker.probe.phases import BETWEEN, WAITING, Interval, PhaseClock
from ddp_perf.worker.probe.preconditions import all_agree, allocator_retries, has_room
from ddp_perf.worker.steps.trainer import Trainer

_PREFETCHED = 3  # batches that a worker of a DataLoader may have ready: 2, and one half done
_DDP_RATE = 100  # of steps: DDP's own default
_PHASES = ("data", "forward", "backward", "optimizer")


def probe(
    case: Case,
    trainer: Trainer,
    structure: Structure,
    device: torch.device,
    steps: int,
) -> RankProbe:
    """Look at ``steps`` steps of each run. Afterwards the ranks hold different parameters."""
    _drain_loaders(case, trainer)
    before = allocator_retries(device)
    rows, exposed = _synchronised(trainer, device, steps)
    retries = allocator_retries(device) - before
    host_reads = count_host_reads(trainer, device)
    alone_s = communication_s(case, structure.collectives, trainer.beat, device, steps)
    alone = _unsynchronised(case, trainer, structure, device, steps)
    # Of a GPU's phases the host's threads tell nothing, and of two threads not which one rested.
    tells_idle = case.tier == "cpu" and case.threads_per_rank == 1
    rests = [_idle_s(row, "backward") if tells_idle else 0.0 for row in alone]
    return RankProbe(
        phases=_as_phases(rows, exposed, tells_idle=tells_idle),
        backward_cpu=_of_phase(rows, "backward", "process_s") if tells_idle else (),
        unsynchronised_backward=_minus(_of_phase(alone, "backward"), rests),
        unsynchronised_idle=tuple(rests),
        communication=alone_s,
        host_reads=host_reads,
        allocator_retries=retries / (steps + 1),  # one more was run, see _synchronised
        sees_communication=case.strategy != "fsdp" or device.type == "cpu",
    )


def _drain_loaders(case: Case, trainer: Trainer) -> None:
    """Loaders went on while nobody trained: take what they have ready."""
    for _ in range(_PREFETCHED * (case.data.num_workers or 0)):
        trainer.step()


def _synchronised(
    trainer: Trainer, device: torch.device, steps: int
) -> tuple[list[list[Interval]], list[float]]:
    """The intervals of each step, and what is exposed in it.

    DDP tells of a step's communication when the next one begins: one more step is run.
    """
    exposed: list[float] = []
    with _ddp_times_each_step(trainer.module):
        rows = _rows_of_steps(
            trainer,
            device,
            steps + 1,
            synchronise=True,
            after_step=lambda: exposed.append(_exposed_s(trainer.module)),
        )
    return rows[:-1], exposed[1:]


@contextlib.contextmanager
def _ddp_times_each_step(module: nn.Module) -> Iterator[None]:
    """By itself it times each hundredth. On a GPU that makes the host wait for the step before:
    what the host does beside the GPU shows more in these steps than in the timed ones.
    """
    if not isinstance(module, DistributedDataParallel):
        yield
        return
    set_rate = module._set_ddp_runtime_logging_sample_rate
    set_rate(1)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        set_rate(_DDP_RATE)  # type: ignore[no-untyped-call]


def _unsynchronised(
    case: Case, trainer: Trainer, structure: Structure, device: torch.device, steps: int
) -> list[list[Interval]]:
    """The intervals of DDP's steps when gradients stay where they are. FSDP's would not be those
    of the same step: whole gradients need memory that the sharded model may not leave.
    """
    if case.strategy != "ddp" or not all_agree(has_room(structure.gradient_bytes, device), device):
        return []
    return _rows_of_steps(trainer, device, steps, synchronise=False)


def _as_phases(
    rows: Sequence[Sequence[Interval]], exposed: Sequence[float], *, tells_idle: bool
) -> RankPhases:
    walls = {phase: _of_phase(rows, phase) for phase in (*_PHASES, WAITING)}
    walls["backward"] = _minus(walls["backward"], exposed)
    idle = [0.0] * len(rows)
    if tells_idle:
        for phase in ("forward", "optimizer"):
            rests = [_idle_s(row, phase) for row in rows]
            walls[phase] = _minus(walls[phase], rests)
            idle = [a + b for a, b in zip(idle, rests, strict=True)]
    return RankPhases(**walls, exposed=tuple(exposed), idle=tuple(idle))


def _idle_s(row: Iterable[Interval], phase: str) -> float:
    """Of a phase in which a CPU has no reason to rest."""
    of_phase = [interval for interval in row if interval.phase == phase]
    return max(0.0, sum(interval.wall_s - interval.thread_s for interval in of_phase))


def _of_phase(
    rows: Iterable[Iterable[Interval]], phase: str, figure: str = "wall_s"
) -> tuple[float, ...]:
    """Seconds of each step in it."""
    return tuple(sum(getattr(i, figure) for i in row if i.phase == phase) for row in rows)


def _minus(whole: Iterable[float], part: Iterable[float]) -> tuple[float, ...]:
    return tuple(a - b for a, b in zip(whole, part, strict=True))


def _rows_of_steps(
    trainer: Trainer,
    device: torch.device,
    steps: int,
    *,
    synchronise: bool,
    after_step: Callable[[], None] = lambda: None,
) -> list[list[Interval]]:
    """The intervals of each step."""
    clock = PhaseClock(device)
    dist.barrier()
    clock.start()
    with trainer.observe(clock.mark), clock.separate_waits(trainer.module):
        for _ in range(steps):
            trainer.step(synchronise=synchronise)
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
    """From the last gradient of the newest step that DDP tells of to its last reduced bucket.
    Where it tells of none, as with FSDP, that time is in the backward.
    """
    times = ddp_logging(module)
    communication = int(times.get("backward_comm_time", 0))
    return (communication - int(times.get("backward_compute_comm_overlap_time", 0))) / 1e9
