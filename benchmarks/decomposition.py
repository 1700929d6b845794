"""Check that the terms of a step add up to the timed step, for every case of the CPU suites.

The terms come from steps that run after the timed ones, so nothing makes them agree but that
both are the same step. Ratios within one launch; the median of eleven: on a shared machine each
of them is off by 5 % and more, one rank that runs the same loop twice among them.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from pathlib import Path

import msgspec

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.stats.step_decomposition import decompose
from ddp_perf.system.lease import machine_lease

LAUNCHES, STEPS, WARMUP = 11, 32, 4
TOLERANCE = 0.05
SUITES = Path(__file__).parents[1] / "bench_configs"


def main() -> int:
    cases = _cases()
    ratios: dict[str, list[float]] = {case.id: [] for case in cases}
    with contextlib.closing(ServerLauncher()) as launcher:
        # Round by round, as a session does: a machine's drift is then no case's own.
        for round_ in range(LAUNCHES):
            for case in cases:
                with machine_lease(patience_s=600, on_wait=lambda message: None, gpus=()):
                    ratios[case.id].append(_ratio(launcher, case, round_))
            print(f"round {round_ + 1} of {LAUNCHES} is done", file=sys.stderr)
    for case_id, each in ratios.items():
        print(f"{case_id:70} {statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})")
    medians = [statistics.median(each) for each in ratios.values()]
    far = [median for median in medians if abs(median - 1) > TOLERANCE]
    print(
        f"terms ÷ timed step: {statistics.median(medians):.3f} (median of {len(medians)} cases,"
        f" {min(medians):.3f} to {max(medians):.3f}; target: 1.00 ± {TOLERANCE});"
        f" {len(far)} cases are further off"
    )
    return int(bool(far))


def _cases() -> list[Case]:
    paths = [SUITES / "cpu_quick.yaml", *sorted((SUITES / "cpu").glob("*.yaml"))]
    cases = [case for case in load_cases(paths, Overrides()) if case.trains]
    return [_shortened(case) for case in cases]


def _shortened(case: Case) -> Case:
    schedule = msgspec.structs.replace(case.schedule, steps=STEPS, warmup=WARMUP)
    return msgspec.structs.replace(case, schedule=schedule)


def _ratio(launcher: ServerLauncher, case: Case, round_: int) -> float:
    outcome = launcher.launch(LaunchRequest(case=case, round=round_, probe_steps=STEPS))
    if not isinstance(outcome, LaunchResult):
        raise SystemExit(str(outcome))
    found = decompose(outcome)
    assert found is not None  # every case here trains
    return found.explained_s / statistics.median(outcome.step_s)


if __name__ == "__main__":
    sys.exit(main())
