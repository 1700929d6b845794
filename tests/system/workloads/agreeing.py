"""A workload whose ranks agree on the time of a window of steps, and write it to a file."""

from __future__ import annotations

import json
from pathlib import Path

from ddp_perf.worker.timing.timed_steps import slowest
from ddp_perf.workloads import mlp


def build(context, *, notes):
    """Return the workload: rank 0 stalls in one step, rank 1 is slow in each."""
    median_s, window_s = [(1.0, 11.0), (2.0, 6.0)][context.rank]
    Path(f"{notes}.{context.rank}").write_text(
        json.dumps(slowest([median_s, window_s], context.device)), encoding="utf-8"
    )
    return mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)
