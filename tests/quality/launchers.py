"""Compare the steps of ranks that torchrun starts with those of forked ranks, in alternation.

The steps are EQUIVALENT if two one-sided tests, each at 5 %, rule out that they differ by the
tolerance (Schuirmann 1987): then the 90 % interval of the ratio lies within it.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
from pathlib import Path

from ddp_perf.config.loading import load_cases
from ddp_perf.config.overrides import Overrides
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.launch.launcher import Launcher
from ddp_perf.launch.nodes.node_launcher import NodeLauncher
from ddp_perf.launch.nodes.torchrun import TorchrunEngine
from ddp_perf.stats.rule.comparison import upper_t
from ddp_perf.stats.summary import step_level

SUITE = Path(__file__).parents[2] / "bench_configs" / "cpu_quick.yaml"
TOLERANCE = 0.05
LAUNCHES = 12


def main(launches: int = LAUNCHES) -> int:
    found = []
    with (
        contextlib.closing(ForkserverLauncher()) as forked,
        contextlib.closing(NodeLauncher(TorchrunEngine())) as started,
    ):
        for case in load_cases([SUITE], Overrides(), ()):
            logs = []
            for round_ in range(launches):
                if round_ % 2:  # each is the first one of every second pair
                    own, other = _level(started, case, round_), _level(forked, case, round_)
                else:
                    other, own = _level(forked, case, round_), _level(started, case, round_)
                logs.append(math.log(own / other))
            found.append(_verdict(case, logs))
    return int(not all(found))


def _level(launcher: Launcher, case: Case, round_: int) -> float:
    outcome = launcher.launch(LaunchRequest(case=case, round=round_))
    if not isinstance(outcome, LaunchResult):
        sys.exit(str(outcome))
    return step_level(outcome)


def _verdict(case: Case, logs: list[float]) -> bool:
    """Print torchrun ÷ forkserver and the verdict; return whether it is EQUIVALENT."""
    mean = statistics.fmean(logs)
    half = upper_t(len(logs) - 1, 0.05) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half)
    is_equivalent = low > 1 - TOLERANCE and high < 1 / (1 - TOLERANCE)
    verdict = "EQUIVALENT" if is_equivalent else "UNDECIDED"
    print(
        f"{case.id}: torchrun ÷ forkserver {math.exp(mean):.3f} (90 % {low:.3f} to {high:.3f}),"
        f" {len(logs)} pairs of launches: {verdict} within {TOLERANCE:.0%}",
        flush=True,
    )
    return is_equivalent


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
