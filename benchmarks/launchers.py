"""Compare the steps of ranks that torchrun starts with those of forked ranks, in alternation.

They are judged as the pairs of a duel: EQUIVALENT if the 90 % interval of the ratio lies within
the tolerance.
"""

from __future__ import annotations

import contextlib
import math
import sys
from pathlib import Path

from ddp_perf.launch.nodes.node_launcher import NodeLauncher
from ddp_perf.launch.nodes.torchrun import TorchrunEngine

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.launch.launcher import Launcher
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.stats.pairs import PairedPlan, judge_pairs
from ddp_perf.stats.summary import step_level

SUITE = Path(__file__).parents[1] / "bench_configs" / "cpu_quick.yaml"
TOLERANCE = 0.05
ALPHA = 0.05  # of SLOWER, and of FASTER: their interval is then one of 90 %, too
LAUNCHES = 12


def main(launches: int = LAUNCHES) -> int:
    found = []
    with (
        contextlib.closing(ServerLauncher()) as forked,
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
    plan = PairedPlan(alpha=ALPHA, tolerance=TOLERANCE, looks=(len(logs),))
    verdict = judge_pairs(logs, plan)
    low, high = verdict.interval or (0.0, math.inf)
    print(
        f"{case.id}: torchrun ÷ forkserver {verdict.ratio:.3f} (90 % {low:.3f} to {high:.3f}),"
        f" {verdict.pairs} pairs of launches: {verdict.outcome.name} (tolerance {TOLERANCE:.0%})",
        flush=True,
    )
    return verdict.outcome is DuelOutcome.EQUIVALENT


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
