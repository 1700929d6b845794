"""Measure what collecting 1,000 cases costs, beside bare pytest."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
REPEATS = 5
SUITE = """
suite: thousand
tier: cpu
workload: mlp
world_sizes: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
batch_sizes: [{batch_sizes}]
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "bench_configs").mkdir()
        batch_sizes = ", ".join(str(size) for size in range(1, 101))
        (directory / "bench_configs/thousand.yaml").write_text(
            SUITE.format(batch_sizes=batch_sizes)
        )
        (directory / "pytest.ini").write_text("[pytest]\n")
        (directory / "test_bare.py").write_text("def test_nothing():\n    pass\n")
        (directory / "tests").symlink_to(ROOT / "tests/perf")
        bare = ["-p", "no:ddp_perf.plugin", "test_bare.py"]
        suite = ["-p", "ddp_perf.plugin", "--import-mode=importlib", "-m", "perf", "tests"]
        pairs = [(_seconds(directory, bare), _seconds(directory, suite)) for _ in range(REPEATS)]
        items = _items(directory, suite)
    added = statistics.median(with_suite - without for without, with_suite in pairs)
    base = statistics.median(without for without, _ in pairs)
    print(
        f"collection: 1,000 cases ({items} items) add {added:.2f} s of CPU time to bare pytest's"
        f" {base:.2f} s (median of {REPEATS} alternating pairs; target: under 1 s)"
    )


def _command(arguments: list[str]) -> list[str]:
    quiet = ("--collect-only", "-q", "-p", "no:hypothesispytest")  # it imports for two seconds
    return [sys.executable, "-m", "pytest", *quiet, *arguments]


def _seconds(directory: Path, arguments: list[str]) -> float:
    """Return the CPU seconds of the run. Collecting waits for nothing, and CPU contention
    does not count."""
    before = os.times()
    subprocess.run(_command(arguments), cwd=directory, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def _items(directory: Path, arguments: list[str]) -> int:
    done = subprocess.run(_command(arguments), cwd=directory, capture_output=True, text=True)
    return sum("::" in line for line in done.stdout.splitlines())


if __name__ == "__main__":
    main()
