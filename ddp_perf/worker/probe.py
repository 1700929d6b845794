"""Where the time of a step goes: some more steps, run after all that is timed, and looked at.

Three runs that differ in one thing: the step as it is; the step without synchronising gradients;
the collectives without the step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankPhases, RankProbe
from ddp_perf.core.result import Collective
from ddp_perf.worker.calls import CALLS
from ddp_perf.worker.clock import step_clock
from ddp_perf.worker.phases import BETWEEN, WAITING, Interval, PhaseClock
from ddp_perf.worker.structure import ddp_logging
from ddp_perf.worker.trainer import Trainer

_PHASES = ("data", "forward", "backward", "optimizer")
_BUSY_PHASES = ("forward", "backward", "optimizer")  # in which a CPU has no reason to rest


def probe(
    case: Case,
    trainer: Trainer,
    collectives: Sequence[Collective],
    device: torch.device,
    steps: int,
) -> RankProbe:
    """Look at ``steps`` steps of each run. Afterwards the ranks hold different parameters."""
    phases = _phases(trainer, device, steps)
    host_reads = _host_reads(trainer.step, device)
    communication = _communication_s(case, collectives, trainer, device, steps)
    return RankProbe(
        phases=phases,
        unsynchronised_backward=_unsynchronised(case, trainer, device, steps),
        communication=communication,
        host_reads=host_reads,
        allocator_retries=_allocator_retries(device),
    )


def _phases(trainer: Trainer, device: torch.device, steps: int) -> RankPhases:
    """DDP tells of a step's communication when the next one begins: one more step is run."""
    exposed: list[float] = []
    if isinstance(trainer.module, DistributedDataParallel):
        every_step = trainer.module._set_ddp_runtime_logging_sample_rate  # by itself each 100th
        every_step(1)  # type: ignore[no-untyped-call]
    rows = _rows_of_steps(
        *(trainer, device, steps + 1),
        synchronise=True,
        after_step=lambda: exposed.append(_exposed_s(trainer.module)),
    )
    return _as_phases(rows[:-1], exposed[1:], device)


def _unsynchronised(
    case: Case, trainer: Trainer, device: torch.device, steps: int
) -> tuple[float, ...]:
    """The backward of DDP's steps when gradients stay where they are. FSDP's would not be those
    of the same step: whole gradients need memory that the sharded model may not leave.
    """
    if case.strategy != "ddp":
        return ()
    rows = _rows_of_steps(trainer, device, steps, synchronise=False)
    return _as_phases(rows, [0.0] * steps, device).backward


def _as_phases(
    rows: Sequence[Sequence[Interval]], exposed: Sequence[float], device: torch.device
) -> RankPhases:
    walls = {phase: [_wall_s(row, phase) for row in rows] for phase in (*_PHASES, WAITING)}
    walls["backward"] = _minus(walls["backward"], exposed)
    idle = {phase: [0.0] * len(rows) for phase in _BUSY_PHASES}
    if device.type == "cpu":  # of a GPU's phases the host's threads tell nothing
        for phase in _BUSY_PHASES:
            cpus = [_cpu_s(row, phase) for row in rows]
            idle[phase] = [max(0.0, lost) for lost in _minus(walls[phase], cpus)]
            walls[phase] = _minus(walls[phase], idle[phase])
    return RankPhases(
        **{phase: tuple(seconds) for phase, seconds in walls.items()},
        exposed=tuple(exposed),
        idle=tuple(map(sum, zip(*idle.values(), strict=True))),
    )


def _minus(whole: Iterable[float], part: Iterable[float]) -> list[float]:
    return [a - b for a, b in zip(whole, part, strict=True)]


def _rows_of_steps(
    trainer: Trainer,
    device: torch.device,
    steps: int,
    *,
    synchronise: bool,
    after_step: Callable[[], None] = lambda: None,
) -> list[list[Interval]]:
    """The intervals of each step."""
    clock, before = PhaseClock(device), trainer.phase_done
    trainer.phase_done = clock.mark
    dist.barrier()
    clock.start()
    with clock.waits_apart():
        for _ in range(steps):
            trainer.step(synchronise=synchronise)
            after_step()
            clock.mark(BETWEEN)
    trainer.phase_done = before
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


def _wall_s(row: Iterable[Interval], phase: str) -> float:
    return sum(interval.wall_s for interval in row if interval.phase == phase)


def _cpu_s(row: Iterable[Interval], phase: str) -> float:
    return sum(interval.cpu_s for interval in row if interval.phase == phase)


def _communication_s(
    case: Case,
    collectives: Sequence[Collective],
    trainer: Trainer,
    device: torch.device,
    rounds: int,
) -> tuple[float, ...]:
    """Seconds of all collectives of a step, one after the other; empty where they are not
    those of all ranks on this device.
    """
    of_groups = getattr(case.comm_hook, "group_size", None) is not None
    offloaded = case.fsdp is not None and case.fsdp.cpu_offload
    if of_groups or offloaded or not all(c.kind in CALLS for c in collectives):
        return ()
    calls = _calls(collectives, device)
    for call in calls:
        call()
    clock = step_clock(device, rounds + 1)
    dist.barrier()
    clock.mark()
    for _ in range(rounds):
        for call in calls:
            call()
        clock.mark()
        trainer.beat()
    return tuple(clock.intervals_s(trainer.beat))


def _calls(collectives: Sequence[Collective], device: torch.device) -> list[Callable[[], object]]:
    """On the same memory, all of them: a sharded model may leave room for no more."""
    most = max((collective.bytes for collective in collectives), default=0)
    memory = torch.zeros(2, most, dtype=torch.uint8, device=device)
    calls: list[Callable[[], object]] = []
    for collective in collectives:
        dtype: torch.dtype = getattr(torch, collective.dtype)
        whole, own = memory[:, : collective.bytes].view(dtype)
        share = own[: len(own) // dist.get_world_size()]
        calls.append(functools.partial(CALLS[collective.kind], whole, share))
    return calls


class _ReadCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what makes a host wait for a value."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self.count += int(args[0].device == self._device)
        return func(*args, **(kwargs or {}))


def _host_reads(step: Callable[[], None], device: torch.device) -> int:
    counter = _ReadCounter(device)
    with counter:
        step()
    return counter.count


def _allocator_retries(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    return int(torch.cuda.memory_stats(device)["num_alloc_retries"])
