"""Measure how often an absolute target is called met, missed or undecided.

``python benchmarks/targets.py [--trials N] [--seed N]`` prints how often.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bounds import with_interval
from tests.simulated_targets import LAUNCH_SD, MACHINES, error_rates

LOOKS = ((5,), (5, 20))
# How sessions differ (sd of the log), and how far their mean is above the target.
SESSIONS = ((0.0, (0.0, 0.01, 0.03)), (0.02, (0.0, 0.01, 0.04)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"per cent of {options.trials:,} sessions (95 % interval), launches of {LAUNCH_SD:.0%}")
    print(f"{'launches':24} {'looks':8} {'sessions':9} {'above':>6} {'met':>20} {'missed':>20}")
    for machine in MACHINES:
        for looks in LOOKS:
            for session_sd, distances in SESSIONS:
                for at in distances:
                    counts = error_rates(
                        machine,
                        looks,
                        at=at,
                        trials=options.trials,
                        seed=options.seed,
                        session_sd=session_sd,
                    )
                    met, missed = (with_interval(n, options.trials, 2) for n in counts)
                    print(
                        f"{machine:24} {', '.join(map(str, looks)):8} {session_sd:<9.0%}"
                        f" {at:6.0%} {met:>20} {missed:>20}"
                    )


if __name__ == "__main__":
    main()
