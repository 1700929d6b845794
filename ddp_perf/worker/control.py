"""The control: a frozen reference operation, to tell a machine that moved from code that moved.

Its sizes are part of every stored baseline. They must never change.
"""

from __future__ import annotations

import torch

from ddp_perf.worker.clock import step_clock

REPEATS = 4  # before the steps, and again after them
_CPU_SIZE = 512
_CUDA_SIZE = 4096


def control_times_s(device: torch.device) -> list[float]:
    """Seconds of each of REPEATS square FP32 matrix products, after one that is not counted.

    Holds no memory afterwards, and leaves the precision that the workload chose.
    """
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    size = _CUDA_SIZE if device.type == "cuda" else _CPU_SIZE
    one, other = torch.full((2, size, size), 0.5, device=device).unbind()
    product = torch.empty(size, size, device=device)
    clock = step_clock(device, REPEATS)
    torch.mm(one, other, out=product)
    clock.mark()
    for _ in range(REPEATS):
        torch.mm(one, other, out=product)
        clock.mark()
    torch.set_float32_matmul_precision(precision)
    return clock.intervals_s(lambda: None)
