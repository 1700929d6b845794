"""A GPU that is not there: a host that enqueues, and a device that works off what it was given.

Both live on one simulated time. What a real GPU adds to it (clocks, power, heat) is not here,
save that one that rested is slower.
"""

from __future__ import annotations

EVENT_MADE_S = 5e-6  # cudaEventCreate
CLOCK_HZ = 1e9


class SimulatedGpu:
    """``now_s`` is the host's time; ``free_s`` is when the device will have done all it has."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.free_s = 0.0
        self.busy_s = 0.0  # since it last rested
        self.cold_s = 0.0  # work is half as fast until it was busy for so long
        self.sizes: list[int] = []  # of the matrix products

    def work(self, device_s: float, host_s: float = 0.0) -> None:
        """Enqueue work that takes the device so long, and the host to launch it."""
        self.now_s += host_s
        if self.now_s > self.free_s + 1e-3:
            self.busy_s = 0.0
        device_s *= 2 if self.busy_s < self.cold_s else 1
        self.free_s = max(self.now_s, self.free_s) + device_s
        self.busy_s += device_s

    def rest(self, seconds: float) -> None:
        self.now_s = max(self.now_s, self.free_s) + seconds

    def synchronize(self, device: object = None) -> None:
        self.now_s = max(self.now_s, self.free_s)

    def multiply(self, one: int, other: int, out: object) -> None:
        """A product of size 4,096 takes 2.3 ms, as an H200's, and 5 µs to launch."""
        self.sizes.append(one)
        self.work(max(4e-6, 2.3e-3 * (one / 4096) ** 3), 5e-6)

    def event(self, enable_timing: bool) -> SimulatedEvent:
        return SimulatedEvent(self)


class SimulatedEvent:
    """CUDA makes it at its first record."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self.at_s: float | None = None

    def record(self, stream: object) -> None:
        if self.at_s is None:
            self._gpu.now_s += EVENT_MADE_S
        self.at_s = max(self._gpu.now_s, self._gpu.free_s)

    def synchronize(self) -> None:
        assert self.at_s is not None
        self._gpu.now_s = max(self._gpu.now_s, self.at_s)

    def elapsed_time(self, end: SimulatedEvent) -> float:
        assert self.at_s is not None
        assert end.at_s is not None
        return (end.at_s - self.at_s) * 1e3
