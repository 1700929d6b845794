"""Measure the memory of the driver (pytest): with few launches, with many, and per launch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FEW, MANY = 5, 100
SUITE = """
suite: driver_memory
tier: cpu
workload: mlp
model: {input_dim: 64, hidden_dim: 64, output_dim: 8}
world_sizes: [1, 2]
batch_sizes: [8]
steps: 60
warmup: 5
"""
# Peak resident set of the pytest process itself, its ranks not counted; and its forkserver's.
RUN = """
import resource, sys, pytest
pytest.main(sys.argv[1:])
print("driver", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print("ranks", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "bench_configs").mkdir()
        (directory / "bench_configs/suite.yaml").write_text(SUITE)
        (directory / "pytest.ini").write_text("[pytest]\n")
        (directory / "tests").symlink_to(ROOT / "tests/perf")
        few, many = (_peak_mb(directory, launches) for launches in (FEW, MANY))
    each_kb = (many["driver"] - few["driver"]) * 1024 / (2 * (MANY - FEW))
    print(
        f"driver memory: {many['driver']:.0f} MB after {2 * MANY} launches (target: under 400 MB),"
        f" {few['driver']:.0f} MB after {2 * FEW}: {each_kb:.0f} KB a launch, its step times kept;"
        f" forkserver and ranks {many['ranks']:.0f} MB, {many['ranks'] / few['ranks']:.3f} ×"
    )


def _peak_mb(directory: Path, launches: int) -> dict[str, float]:
    options = ["-p", "ddp_perf.plugin", "-m", "cpu", "--save-baseline", "-q"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *options, f"--ddp-launches={launches}", "tests"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = (line.split() for line in done.stdout.splitlines()[-2:])
    return {name: float(value) for name, value in lines}


if __name__ == "__main__":
    main()
