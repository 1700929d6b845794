"""Times of a real script's steps from outside: its own, and those of a stopwatch beside it.

The stopwatch (``script_stamps.py``) runs the script twice at the same time: in a launch of this
package, and under torchrun without it. Both take turns on the same cores, a few steps each, so the
ratio of their times is the observer effect.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks import script_stamps
from benchmarks.script_stamps import ALONE, TURN, WATCHED
from benchmarks.script_values import RealScript
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.engines.machine import ThisMachine
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.stats.interval import upper_t

STEPS = 300  # of a launch, with the warm-ups


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """The same steps by our clock, by the stopwatch on both sides, and by the script's own lines.

    ``first`` is the number of the first one; the script's first step is 0. The first step of a turn
    contains the turn of the other side, and is left out of all figures.
    """

    first: int
    ours_s: tuple[float, ...]
    watched_s: tuple[float, ...]
    alone_s: tuple[float, ...]
    printed_s: dict[int, float] = {}  # by the number of the step

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps that count."""
        numbers = range(self.first, self.first + len(self.ours_s))
        return [number for number in numbers if number % TURN]

    def by_stopwatch(self) -> float:
        """Return our time ÷ that of the stopwatch beside us."""
        places = [number - self.first for number in self.steps]
        return sum(self.ours_s[at] for at in places) / sum(self.watched_s[at] for at in places)

    def by_script(self) -> float:
        """Return our time ÷ the script's own, of all steps that it printed a time of.

        By its lines the last step of a turn, in which the stopwatch waits, contains the other turn.
        """
        steps = [n for n in self.steps if n in self.printed_s and (n + 1) % TURN]
        if not steps:
            raise SystemExit("the script printed no time of the timed steps")
        ours = sum(self.ours_s[number - self.first] for number in steps)
        return ours / sum(self.printed_s[number] for number in steps)

    def effect(self) -> float:
        """Return the time beside us ÷ the time alone: the median of all turns."""
        turns = sorted({number // TURN for number in self.steps})
        return statistics.median(
            self._median_s(self.watched_s, turn) / self._median_s(self.alone_s, turn)
            for turn in turns
        )

    def _median_s(self, step_s: Sequence[float], turn: int) -> float:
        """Return the median step of a turn: single disturbed steps do not move it."""
        return statistics.median(
            step_s[number - self.first] for number in self.steps if number // TURN == turn
        )


def timing(script: RealScript, clones: Path, directory: Path, pairs: int) -> Iterator[str]:
    """Yield a line for each figure of each number of ranks."""
    script.place(clones, directory)
    suites = []
    for name, suite in script.suites().items():
        suites.append(directory / f"{name}.yaml")
        suites[-1].write_bytes(msgspec.yaml.encode({**suite, "steps": STEPS}))
    for file in suites:
        for case in load_cases([file], Overrides(), [str(directory)]):
            launches = [_timed(script, case, directory, pair) for pair in range(pairs)]
            stopwatch = ratio_text([one.by_stopwatch() for one in launches])
            yield f"{case.id}: ours ÷ the stopwatch {stopwatch}"
            printed = ratio_text([one.by_script() for one in launches])
            yield f"{case.id}: ours ÷ the script's own lines {printed}"
            effect = ratio_text([one.effect() for one in launches])
            yield f"{case.id}: observer effect {effect}; target 1.00 ± 0.01"


def ratio_text(ratios: Sequence[float]) -> str:
    """Return the geometric mean of some ratios, with its 95 % interval if there are several."""
    logs = [math.log(one) for one in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.4f} (1 launch)"
    half = upper_t(len(logs) - 1, 0.025) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half)
    return f"{math.exp(mean):.4f} (95 % {low:.4f} to {high:.4f}, {len(logs)} launches)"


def _timed(script: RealScript, case: Case, directory: Path, round_: int) -> Timed:
    """Launch the case with the stopwatch beside its script, and the script alone in turn with it.

    A launcher of its own: the ranks of one server share their addresses, and so their speed.
    """
    assert case.script is not None
    assert script.own_times is not None
    with tempfile.TemporaryDirectory(dir=directory) as stamps:
        for rank in range(case.world_size):
            for side in (WATCHED, ALONE):
                os.mkfifo(f"{stamps}/to_{side}.{rank}")
        args = (WATCHED, stamps, case.script.script, *case.script.args)
        run = msgspec.structs.replace(case.script, script=script_stamps.__file__, args=args)
        request = LaunchRequest(
            case=msgspec.structs.replace(case, script=run),
            round=round_,
            import_paths=(str(directory),),
        )
        engine = ThisMachine(working_directory=directory)
        with (
            _alone(case, Path(stamps), directory),
            contextlib.closing(ServerLauncher(engine)) as launcher,
        ):
            result = launcher.launch(request)
            if not isinstance(result, LaunchResult):
                raise SystemExit(f"{case.id}: {result}\n{result.traceback}\n{result.output}")
        # After the last timed step this package computes before the script goes on, and a busy
        # machine has more timed steps then. Neither is the script's time: leave the last one out.
        ours = result.ranks[0].step_s[: case.schedule.measured - 1]
        watched, alone = (step_times(Path(stamps, f"{side}.0")) for side in (WATCHED, ALONE))
        first = place_of(ours, watched)
        ours = ours[: len(alone) - first + 1]  # this side ends in the middle of a turn
        window = slice(first - 1, first - 1 + len(ours))
        lines = Path(stamps, f"{WATCHED}.0.out").read_text(encoding="utf-8").splitlines()
        return Timed(
            first=first,
            ours_s=ours,
            watched_s=tuple(watched[window].tolist()),
            alone_s=tuple(alone[window].tolist()),
            printed_s=printed_times(lines, script.own_times, script.own_times_lag),
        )


@contextlib.contextmanager
def _alone(case: Case, stamps: Path, directory: Path) -> Iterator[None]:
    """Run the script under torchrun, without this package, in the ``with`` block."""
    assert case.script is not None
    environ = {
        **os.environ,
        **case.env,
        "PYTHONPATH": str(directory),  # as its users have installed the repository
        "OMP_NUM_THREADS": str(case.threads_per_rank),
    }
    torchrun = ["-m", "torch.distributed.run", "--standalone"]
    ranks = f"--nproc-per-node={case.world_size}"
    stopwatch = [script_stamps.__file__, ALONE, str(stamps)]
    with (
        (stamps / "torchrun.out").open("w") as output,
        subprocess.Popen(
            [sys.executable, *torchrun, ranks, *stopwatch, case.script.script, *case.script.args],
            cwd=directory,
            env=environ,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            yield
        except BaseException:
            process.terminate()
            raise
        if process.wait():
            shown = (stamps / "torchrun.out").read_text(encoding="utf-8")
            raise SystemExit(f"{case.id} under torchrun: {shown}")


def step_times(stamps: Path) -> np.ndarray:
    """Return the times of the second step of a rank and of each later one."""
    return np.diff(np.fromfile(stamps, dtype=np.float64))


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
