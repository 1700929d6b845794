"""The control: a fixed reference operation. It shows whether the machine changed, or the code.

Its sizes are part of every stored baseline. They must never change.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from ddp_perf.torch_compat import ieee_products
from ddp_perf.worker.timing.clock import step_clock

REPEATS = 4  # before the steps, and as many after them
_CPU_SIZE = 512
_CUDA_SIZE = 4096
_WARM_S = 0.2  # an idle GPU has slow clocks, which would affect half of the control


def control_times_s(device: torch.device) -> list[float]:
    """Return the seconds of each of REPEATS square FP32 matrix products.

    At least one uncounted product comes first; on a GPU, as many as warm it. Afterwards no memory
    is in use, and the precision is what the workload chose.
    """
    size = _CUDA_SIZE if device.type == "cuda" else _CPU_SIZE
    one, other = torch.full((2, size, size), 0.5, device=device).unbind()
    product = torch.empty(size, size, device=device)

    def multiply() -> None:
        torch.mm(one, other, out=product)

    with ieee_products(device):
        multiply()
        if device.type == "cuda":
            _warm(multiply, device)
        clock = step_clock(device, REPEATS)
        clock.mark()
        for _ in range(REPEATS):
            multiply()
            clock.mark()
    return clock.intervals_s(lambda: None)


def _warm(multiply: Callable[[], None], device: torch.device) -> None:
    end = time.monotonic() + _WARM_S
    while time.monotonic() < end:
        multiply()
        torch.cuda.synchronize(device)
