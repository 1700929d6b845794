"""A GPU that is not there: a host that enqueues, and a device that works off what it was given.

Both live on one simulated time. Of what a real GPU adds to it, there are a queue that is not
endless, a boost that decays under load and returns at rest, and heat.
"""

from __future__ import annotations

import math
from collections import deque

from ddp_perf.core.gpu import GpuLoad

EVENT_MADE_S = 5e-6  # cudaEventCreate
CLOCK_HZ = 1e9
QUEUE = 1024  # launches: with so many, the host waits until one is through
CLOCK_MHZ = 1500  # without any boost
COLD_C, WARMTH_C = 35, 45


class SimulatedGpu:
    """``now_s`` is the host's time; ``free_s`` is when the device will have done all it has."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.free_s = 0.0
        self.busy_s = 0.0  # since it last rested
        self.cold_s = 0.0  # work is half as fast until it was busy for so long
        self.sizes: list[int] = []  # of the matrix products
        self.boost: dict[float, float] = {}  # by its τ in seconds: share of the clock, when rested
        self.locked_mhz = math.inf
        self.reading_s = 0.0  # that the host needs to read its load
        self._warmth: dict[float, float] = {}  # by τ: from 0, rested, to 1
        self._queue: deque[float] = deque()  # when each launch will be through

    def work(self, device_s: float, host_s: float = 0.0) -> None:
        """Enqueue work that takes the device so long, and the host to launch it."""
        self.now_s += host_s
        while self._queue and self._queue[0] <= self.now_s:
            self._queue.popleft()
        if len(self._queue) == QUEUE:
            self.now_s = self._queue.popleft()
        begin_s = max(self.now_s, self.free_s)
        if self.now_s > self.free_s + 1e-3:
            self.busy_s = 0.0
        for tau_s, warmth in self._warmth.items():
            self._warmth[tau_s] = warmth * math.exp((self.free_s - begin_s) / tau_s)
        device_s *= (2 if self.busy_s < self.cold_s else 1) * CLOCK_MHZ / self.clock_mhz
        for tau_s in self.boost:
            cold = 1 - self._warmth.get(tau_s, 0.0)
            self._warmth[tau_s] = 1 - cold * math.exp(-device_s / tau_s)
        self.free_s = begin_s + device_s
        self._queue.append(self.free_s)
        self.busy_s += device_s

    @property
    def clock_mhz(self) -> float:
        boosts = (share * (1 - self._warmth.get(tau, 0.0)) for tau, share in self.boost.items())
        return min(CLOCK_MHZ * (1 + sum(boosts)), self.locked_mhz)

    def read_load(self) -> GpuLoad:
        """The load at the end of what is queued, which is near: the host reads while it runs."""
        self.now_s += self.reading_s
        slowest = self._warmth.get(max(self.boost), 0.0) if self.boost else 0.0
        return GpuLoad(
            sm_clock_mhz=round(self.clock_mhz),
            memory_clock_mhz=2619,
            power_w=300.0,
            temperature_c=round(COLD_C + WARMTH_C * slowest),
        )

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

    def query(self) -> bool:
        return self.at_s is not None and self.at_s <= self._gpu.now_s

    def synchronize(self) -> None:
        assert self.at_s is not None
        self._gpu.now_s = max(self._gpu.now_s, self.at_s)

    def elapsed_time(self, end: SimulatedEvent) -> float:
        assert self.at_s is not None
        assert end.at_s is not None
        return (end.at_s - self.at_s) * 1e3


class SimulatedSteps:
    """Steps of some launches. With ``reads`` the host waits for a value in each step."""

    collects_garbage = False

    def __init__(
        self,
        gpu: SimulatedGpu,
        *,
        device_s: float,
        host_s: float,
        reads: bool = False,
        launches: int = 10,
    ) -> None:
        self._gpu, self._reads, self._launches = gpu, reads, launches
        self._device_s, self._host_s = device_s / launches, host_s / launches

    def step(self) -> None:
        for _ in range(self._launches):
            self._gpu.work(self._device_s, self._host_s)
        if self._reads:
            self._gpu.synchronize()

    def beat(self) -> None:
        """Report nothing."""

    def enter(self, phase: object) -> None:
        """Report nothing."""
