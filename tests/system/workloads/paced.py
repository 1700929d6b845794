"""A workload that replaces its rank's clocks: step n takes n ms, and half of it is CPU time.

Each reading takes a microsecond, so everything else that is timed takes little.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

from ddp_perf.workloads import mlp

READING_NS, STEP_NS = 1_000, 1_000_000


class Clock:
    """A clock in nanoseconds, on which ``share`` of each step passes."""

    def __init__(self, share):
        self.now, self._share = 0, share

    def __call__(self):
        self.now += READING_NS
        return self.now

    def step(self, number):
        self.now += int(self._share * number * STEP_NS)


def build(context):
    workload = mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)
    time.perf_counter_ns, time.thread_time_ns = wall, processor = Clock(1.0), Clock(0.5)
    numbers = itertools.count(1)

    def loss(module, batch):
        number = next(numbers)
        wall.step(number)
        processor.step(number)
        return workload.loss(module, batch)

    return replace(workload, loss=loss)
