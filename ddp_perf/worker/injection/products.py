"""Matrix products that take a given time, for the injection compute:N%."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from ddp_perf.torch_compat.internals import occupy_gpu, unseen_by_modes
from ddp_perf.worker.timing.clock import step_clock

_CPU_SIZES = (64,)
# A host needs about as long to launch a small product as a GPU to compute it. In a long step,
# fewer and larger products let the host keep its lead, which ends at 1,024 launches.
_CUDA_SIZES = (2048, 1024, 512, 256)
_LEAST = 20  # products: with this many, rounding to a whole number is an error of 2.5 % at most
_ROUNDS = 10
_A_ROUND = 20  # products: a single one is too short for the clocks
_BUSY_CYCLES = 20_000_000  # 10 ms at 2 GHz: longer than the host needs to launch all rounds


class Products:
    """A number of square matrix products of one size."""

    def __init__(self, device: torch.device, size: int) -> None:
        self._device = device
        self._factors = torch.full((2, size, size), 0.5, device=device).unbind()
        self._product = torch.empty(size, size, device=device)
        self.count = 1

    def run(self) -> None:
        """Run ``count`` products. They slow the step, and no counter takes them for its work."""
        with unseen_by_modes():
            for _ in range(self.count):
                torch.mm(*self._factors, out=self._product)

    def fill(self, seconds: float) -> None:
        """Set the count to what takes ``seconds``, and to 1 at least."""
        self.count = _A_ROUND
        if self._device.type == "cuda":
            # In a device-bound step the products follow each other without a gap. On an idle GPU
            # each would wait until the host launches it.
            occupy_gpu(_BUSY_CYCLES)
        one_s = lower_quartile(times_s(self._device, self.run, _ROUNDS)) / _A_ROUND
        self.count = max(1, round(seconds / one_s))


def products_for(seconds: float, device: torch.device) -> Products:
    """Return the largest products of which at least _LEAST fill the time; else the smallest."""
    for size in _CUDA_SIZES if device.type == "cuda" else _CPU_SIZES:
        products = Products(device, size)
        products.fill(seconds)
        if products.count >= _LEAST:
            break
    return products


def lower_quartile(times_s: list[float]) -> float:
    """Return the lower quartile: a typical time with little CPU contention in it."""
    return statistics.quantiles(times_s, n=4)[0]


def times_s(device: torch.device, act: Callable[[], object], count: int) -> list[float]:
    """Return the seconds of each of ``count`` calls, by the device's clock."""
    clock = step_clock(device, count)
    clock.mark()
    for _ in range(count):
        act()
        clock.mark()
    return clock.intervals_s(lambda: None)
