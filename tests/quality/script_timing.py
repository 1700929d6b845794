"""Times of a real script's steps from outside: its own, and those of a stopwatch beside it.

The stopwatch (``script_stamps.py``) runs the script under torchrun, without this package, and in
launches of this package, in turn, on the same cores. The ratio of both is the observer effect.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from ddp_perf.config.loading import load_cases
from ddp_perf.config.overrides import Overrides
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.stats.rule.comparison import upper_t
from tests.quality.script_values import RealScript

STAMPS = Path(__file__).parent / "script_stamps.py"
STEPS = 100  # of a launch, with the warm-ups


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The timed steps of a launch of ours, among all steps of the script."""

    first: int  # number of the first one; the script's first step is 0
    steps: int
    cores: tuple[tuple[int, ...], ...]  # of each rank

    @property
    def end(self) -> int:
        return self.first + self.steps


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """The same steps by our clock, by the stopwatch beside the script, and by its own lines."""

    window: Window
    ours_s: tuple[float, ...]
    stamped_s: tuple[float, ...]
    printed_s: dict[int, float]  # by the number of the step


def timing(script: RealScript, clones: Path, directory: Path, pairs: int) -> Iterator[str]:
    """Yield a line for each figure of each number of ranks."""
    script.place(clones, directory)
    suites = []
    for name, suite in script.suites().items():
        suites.append(directory / f"{name}.yaml")
        suites[-1].write_bytes(msgspec.yaml.encode({**suite, "steps": STEPS}))
    cases = [case for file in suites for case in load_cases([file], Overrides(), [str(directory)])]
    with contextlib.closing(ForkserverLauncher(working_directory=directory)) as launcher:
        for case in cases:
            yield from _of_case(script, case, launcher, directory, pairs)


def _of_case(
    script: RealScript, case: Case, launcher: ForkserverLauncher, directory: Path, pairs: int
) -> Iterator[str]:
    launches, effects = [], []
    for pair in range(pairs):
        # The first launch says which steps are timed. Which goes first alternates from then on.
        if pair % 2:
            alone = _alone_s(case, launches[0].window, directory)
            launches.append(_timed(script, case, launcher, directory, pair))
        else:
            launches.append(_timed(script, case, launcher, directory, pair))
            alone = _alone_s(case, launches[0].window, directory)
        window = launches[0].window
        ours = launches[-1].stamped_s[: window.steps]
        effects.append(_level(ours) / _level(alone))
    yield f"{case.id}: ours ÷ the stopwatch {ratio_text([_by_stopwatch(one) for one in launches])}"
    printed = [by_script(one) for one in launches]
    yield f"{case.id}: ours ÷ the script's own lines {ratio_text(printed)}"
    yield f"{case.id}: observer effect {ratio_text(effects)}; target 1.00 ± 0.01"


def ratio_text(ratios: Sequence[float]) -> str:
    """Return the geometric mean of some ratios, with its 95 % interval if there are several."""
    logs = [math.log(one) for one in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.4f} (1 launch)"
    half = upper_t(len(logs) - 1, 0.025) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half)
    return f"{math.exp(mean):.4f} (95 % {low:.4f} to {high:.4f}, {len(logs)} launches)"


def by_script(timed: Timed) -> float:
    """Return our time ÷ the script's own, of all timed steps that it printed a time of."""
    first = timed.window.first
    steps = [step for step in timed.printed_s if first <= step < timed.window.end]
    if not steps:
        raise SystemExit("the script printed no time of the timed steps")
    ours = sum(timed.ours_s[step - first] for step in steps)
    return ours / sum(timed.printed_s[step] for step in steps)


def _by_stopwatch(timed: Timed) -> float:
    return sum(timed.ours_s) / sum(timed.stamped_s[: timed.window.steps])


def _level(seconds: Sequence[float]) -> float:
    """Return the median, which single disturbed steps do not move."""
    return statistics.median(seconds)


def _timed(
    script: RealScript, case: Case, launcher: ForkserverLauncher, directory: Path, round_: int
) -> Timed:
    """Launch the case with the stopwatch beside its script."""
    assert case.script is not None
    assert script.own_times is not None
    stamps = directory / "ours"
    args = (str(stamps), case.script.script, *case.script.args)
    run = msgspec.structs.replace(case.script, script=str(STAMPS), args=args)
    request = LaunchRequest(
        case=msgspec.structs.replace(case, script=run),
        round=round_,
        import_paths=(str(directory),),
    )
    result = launcher.launch(request)
    if not isinstance(result, LaunchResult):
        raise SystemExit(f"{case.id}: {result}\n{result.traceback}\n{result.output}")
    # After the last timed step this package computes before the script goes on, and a busy machine
    # has more timed steps then. Neither is the script's time, so the last one is left out.
    ours = result.ranks[0].step_s[: case.schedule.measured - 1]
    stamped = step_times(stamps)
    first = place_of(ours, stamped)
    cores = tuple(rank.placement.cores for rank in result.ranks)
    lines = Path(f"{stamps}.0.out").read_text(encoding="utf-8").splitlines()
    return Timed(
        window=Window(first=first, steps=len(ours), cores=cores),
        ours_s=ours,
        stamped_s=tuple(stamped[first - 1 :][: len(ours)].tolist()),
        printed_s=printed_times(lines, script.own_times, script.own_times_lag),
    )


def _alone_s(case: Case, window: Window, directory: Path) -> list[float]:
    """Run the script under torchrun, without this package, and return the times of these steps."""
    assert case.script is not None
    stamps = directory / "alone"
    cores = ";".join(",".join(map(str, of_rank)) for of_rank in window.cores)
    environ = {
        **os.environ,
        **case.env,
        "PYTHONPATH": str(directory),  # as its users have installed the repository
        "OMP_NUM_THREADS": str(case.threads_per_rank),
        "STAMPS_CORES": cores,
        "STAMPS_STEPS": str(window.end),
    }
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={case.world_size}",
    ]
    command = [sys.executable, *torchrun, str(STAMPS), str(stamps)]
    done = subprocess.run(
        [*command, case.script.script, *case.script.args],
        cwd=directory,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{case.id} under torchrun: {done.stdout}{done.stderr}")
    times: list[float] = step_times(stamps)[window.first - 1 :].tolist()
    return times


def step_times(stamps: Path) -> np.ndarray:
    """Return the times of the second step of rank 0 and of each later one."""
    return np.diff(np.fromfile(f"{stamps}.0", dtype=np.float64))


def place_of(ours: Sequence[float], stamped: np.ndarray) -> int:
    """Return the number of the first of our steps: where both series of times differ least."""
    differences = [
        float(np.abs(stamped[start : start + len(ours)] - ours).sum())
        for start in range(len(stamped) - len(ours) + 1)
    ]
    return 1 + int(np.argmin(differences))


def printed_times(lines: Sequence[str], pattern: str, lag: int) -> dict[int, float]:
    """Return the seconds of each step that the script printed, by the number of the step."""
    found = (re.search(pattern, line) for line in lines)
    return {int(one["step"]) - lag: float(one["ms"]) / 1e3 for one in found if one}
