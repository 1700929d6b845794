"""Memory of the driver and its forkserver over many launches: what it is, and whether it grows."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from ddp_perf.config.suite import Suite, Variant, cases_of
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.launch.launcher import LaunchRequest

LAUNCHES = 200
SUITE = Suite(
    suite="driver_memory",
    tier="cpu",
    workload="mlp",
    model={"input_dim": 64, "hidden_dim": 64, "output_dim": 8, "num_layers": 2},
    world_sizes=[2],
    batch_sizes=[8],
    steps=4,
    warmup=1,
)


def main() -> None:
    (case,) = cases_of(Variant(suite=SUITE))
    driver, server = [], []
    with contextlib.closing(ForkserverLauncher()) as launcher:
        launcher.runtime({})
        (pid,) = _children(os.getpid())
        for round_ in range(LAUNCHES):
            launcher.launch(LaunchRequest(case=case, round=round_))
            driver.append(_memory_mb(os.getpid()))
            server.append(_memory_mb(pid))
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    tenth = LAUNCHES // 10
    print(
        f"driver memory: {driver[-1]:.0f} MB after {LAUNCHES} launches (target: under 400 MB),"
        f" {driver[-1] / driver[tenth]:.3f} × that after {tenth}; forkserver {server[-1]:.0f} MB,"
        f" {server[-1] / server[tenth]:.3f} ×, {descriptors} open files"
    )


def _memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB$", status, flags=re.MULTILINE)[1]) / 1024


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


if __name__ == "__main__":
    main()
