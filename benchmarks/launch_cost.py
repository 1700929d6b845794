"""Measure what a two-rank DDP launch costs beyond its steps, and how many of 300 fail."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import sys
import time

from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.suite import TrainingSuite
from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.selftest.curve import interval_text
from ddp_perf.stats.interval import share_found

PROBE_STEPS = 8  # as usual
SUITE = TrainingSuite(
    suite="launch_cost",
    tier="cpu",
    workload="mlp",
    model={"input_dim": 256, "hidden_dim": 256, "output_dim": 64, "num_layers": 2},
    world_sizes=[2],
    batch_sizes=[32],
    steps=10,
    warmup=2,
)


def main(launches: int = 300) -> int:
    (case,) = cases_of(Variant(suite=SUITE))
    beyond: dict[int, list[float]] = {1: [], PROBE_STEPS: []}
    failures = []
    with contextlib.closing(ServerLauncher()) as launcher:
        begin = time.perf_counter()
        launcher.runtime(case)
        start = time.perf_counter() - begin
        for round_, probe_steps in zip(range(launches), itertools.cycle(beyond), strict=False):
            request = LaunchRequest(case=case, round=round_, probe_steps=probe_steps)
            begin = time.perf_counter()
            outcome = launcher.launch(request)
            wall = time.perf_counter() - begin
            if isinstance(outcome, LaunchFailure):
                failures.append(str(outcome))
                continue
            steps = max(sum(rank.warmup_s) + sum(rank.step_s) for rank in outcome.ranks)
            beyond[probe_steps].append(wall - steps)
    median, p95 = statistics.median(beyond[1]), statistics.quantiles(beyond[1], n=20)[-1]
    probing = statistics.median(beyond[PROBE_STEPS]) - median
    print(
        f"launch cost: {median:.3f} s beyond the timed steps, p95 {p95:.3f} s, control, counted"
        f" step and one probed step included (median of {len(beyond[1])} launches of 2 gloo"
        f" DDP ranks; target: under 0.2 s); {probing:.3f} s more to probe {PROBE_STEPS} steps;"
        f" forkserver start {start:.1f} s, once; {len(failures)} of {launches} failed (95 %"
        f" interval {interval_text(share_found(len(failures), launches))})"
    )
    print("\n".join(failures))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
