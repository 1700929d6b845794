"""The collectives of a step without its computation, one after the other."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from ddp_perf.core.case import Case
from ddp_perf.core.launch import Collective
from ddp_perf.torch_compat import has_smaller_groups
from ddp_perf.worker.probe.preconditions import all_agree, has_room
from ddp_perf.worker.steps.collective import CALLS
from ddp_perf.worker.timing.clock import step_clock

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
    can = _can_repeat(case, collectives) and has_room(2 * most, device)
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
    offloaded = case.fsdp is not None and case.fsdp.cpu_offload
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
