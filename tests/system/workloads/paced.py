"""A workload that replaces its rank's clocks: step n takes n ms, and half of it is CPU time.

Each reading takes a microsecond, so everything else that is timed takes little. What the kernel
counts of the rank's waits for a core is replaced as well.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path

from ddp_perf.worker.timing import clock
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


def build(context, *, waits, waiting_rank=0, first=1, last=0):
    """Return the workload. One rank waits for a core, a fifth of each step from first to last.

    The file ``waits``.RANK is what the kernel counts.
    """
    workload = mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)
    time.perf_counter_ns, time.process_time_ns = wall, processor = Clock(1.0), Clock(0.5)
    waited, numbers = Clock(0.2), itertools.count(1)
    kernel = Path(f"{waits}.{context.rank}")
    kernel.write_text("1 0 1\n", encoding="utf-8")
    clock._WAITS = kernel

    def loss(module, batch):
        number = next(numbers)
        wall.step(number)
        processor.step(number)
        if context.rank == waiting_rank and first <= number <= last:
            waited.step(number)
            kernel.write_text(f"1 {waited.now} 1\n", encoding="utf-8")
        return workload.loss(module, batch)

    return replace(workload, loss=loss)
