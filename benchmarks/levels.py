"""Compare what a launch may count as, on recordings to which nothing was done.

``python benchmarks/levels.py`` prints, for each candidate: how far the levels of sessions
spread, what the rule finds of slow-downs that are multiplied in, and the smallest slow-down that
pairs of launches show on a day with stolen time; then the bias of the chosen level by the number of
steps, and what the tail shows of slow steps. The witness' bound and the number of steps were chosen
on the sessions of `neighbours`; `calm_day` has no witness and was not used.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
import numpy as np
from scipy import stats

from benchmarks.level_recordings import (
    STEPS,
    RecordedLaunch,
    Sessions,
    calm_day,
    neighbours,
    of_size,
    stolen_day,
)
from ddp_perf.core.baseline import REFERENCE_SESSIONS
from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.level import clean_steps, launch_level
from tests.judging import judge_by_figures

Figure = Callable[[RecordedLaunch], float]
TOLERANCE = 0.05
ALPHA = 0.001  # of a verdict among many; 0.01: of a single one
ALPHAS = (ALPHA, 0.01)
BEFORE = 4  # sessions that the first judged one is compared with
PAIRS, PAIR_ALPHAS, FOUND = 15, (0.05, 0.01), 0.9
RESAMPLES = 2000


def _quantile(share: float) -> Figure:
    return lambda launch: float(np.quantile(launch.wall[:STEPS], share))


def chosen(launch: RecordedLaunch) -> float:
    """Return the level as the suite computes it, of no more steps than the others have."""
    if not launch.disturbed:
        return launch_level(launch.wall[:STEPS])
    return launch_level(clean_steps(launch.wall, launch.disturbed)[:STEPS])


def own_waits_kept(launch: RecordedLaunch) -> float:
    """Return the level if waits for threads of the rank itself left a step clean."""
    return launch_level(clean_steps(launch.wall, launch.disturbed_by_others)[:STEPS])


def cpu_level(launch: RecordedLaunch) -> float:
    return max(launch_level(rank[:STEPS]) for rank in launch.cpu)


CANDIDATES: dict[str, Figure] = {
    "median (before)": _quantile(0.5),
    "25th percentile": _quantile(0.25),
    "10th percentile": _quantile(0.1),
    "minimum": _quantile(0.0),
    "fastest of ten": lambda launch: launch_level(launch.wall[:STEPS]),
    "fastest of ten, own waits kept": own_waits_kept,
    "fastest of ten clean (chosen)": chosen,
}


def spread(sessions: Sessions, figure: Figure) -> float:
    """Return the standard deviation of the levels of the sessions, as a fraction."""
    return statistics.stdev(
        statistics.fmean(math.log(figure(launch)) for launch in session) for session in sessions
    )


def verdicts(
    sessions: Sessions, figure: Figure, slow_down: float, alpha: float
) -> Counter[Outcome]:
    """Judge each session, slowed, by all before it."""
    figures = [[figure(launch) for launch in session] for session in sessions]
    controls = [[launch.control for launch in session] for session in sessions]
    return Counter(
        judge_by_figures(
            [slow_down * value for value in figures[now]],
            figures[:now],
            tolerance=TOLERANCE,
            alpha=alpha,
            control=controls[now],
            baseline_control=controls[:now],
            reference=REFERENCE_SESSIONS,
        ).outcome
        for now in range(BEFORE, len(figures))
    )


def print_candidates(title: str, recordings: Sequence[Sessions], alpha: float = ALPHA) -> None:
    """Print a row for each candidate, with the columns of one rank and of two."""
    print(f"\n{title}; alpha {alpha:.1%}")
    columns = ("sd, %", "false", "+5 %", "+10 %", "PASS", "of")
    print(f"{'a launch counts as':30}" + 2 * "".join(f"{name:>8}" for name in columns))
    for name, figure in CANDIDATES.items():
        print(f"{name:30}" + "".join(_cells(recordings, figure, size, alpha) for size in (1, 2)))


def _cells(recordings: Sequence[Sessions], figure: Figure, world_size: int, alpha: float) -> str:
    sized = [of_size(sessions, world_size) for sessions in recordings]
    sd = math.sqrt(statistics.fmean(spread(sessions, figure) ** 2 for sessions in sized))
    unchanged, five, ten = (
        sum((verdicts(sessions, figure, by, alpha) for sessions in sized), Counter())
        for by in (1.0, 1.05, 1.10)
    )
    red, counts = Outcome.REGRESSION, unchanged.total()
    cells = (unchanged[red], five[red], ten[red], unchanged[Outcome.PASS], counts)
    return f"{100 * sd:8.2f}" + "".join(f"{cell:8}" for cell in cells)


def smallest_found(
    launches: Sequence[RecordedLaunch], figure: Figure, alpha: float, *, controlled: bool
) -> float:
    """Return the slow-down that Student's t on 15 pairs of neighbouring rounds finds in 9 of 10.

    Which launch of a pair is the slower one is drawn by lot, and so are the pairs. ``controlled``
    subtracts what the control explains, by a regression over the pairs.
    """
    random = np.random.default_rng(1)
    logs = np.log([[figure(launch), launch.control] for launch in launches])
    differences = logs[1::2] - logs[::2]
    needed = []
    for _ in range(RESAMPLES):
        drawn = random.choice(differences, PAIRS) * random.choice([-1, 1], (PAIRS, 1))
        design = np.column_stack([np.ones(PAIRS), drawn[:, 1:]])[:, : 1 + controlled]
        fitted = np.linalg.lstsq(design, drawn[:, 0])[0]
        freedom = PAIRS - len(fitted)
        variance = np.sum((drawn[:, 0] - design @ fitted) ** 2) / freedom
        error = math.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0])
        needed.append(stats.t.ppf(1 - alpha, freedom) * error - fitted[0])
    return math.expm1(np.quantile(needed, FOUND))


def print_beside_quiet() -> None:
    """Print verdicts on unchanged sessions beside neighbours, against sessions without them."""
    print("\nBeside neighbours, judged by all sessions without: red of those that are not INVALID")
    for size in (1, 2):
        quiet, near = (of_size(neighbours(near=by), size) for by in (False, True))
        for title, figure, most in (("step time", chosen, 0.15), ("tail", tail, TOLERANCE)):
            valid = [
                session
                for session in near
                if 2 * sum(launch.foreign > most for launch in session) < len(session)
            ]
            red = sum(_is_red([*quiet, session], figure) for session in valid)
            print(
                f"  {size} ranks, {title}: {red} of {len(valid)}; {len(near) - len(valid)} INVALID"
            )


def print_stolen() -> None:
    """Print what pairs of launches show on the day with stolen time."""
    print(
        f"\nStolen time: the smallest slow-down that {PAIRS} pairs of launches show in 9 of 10, %"
    )
    columns = [f"{'control, ' * by}{alpha:.0%}" for alpha in PAIR_ALPHAS for by in (False, True)]
    print(f"{'':30}" + 2 * "".join(f"{column:>13}" for column in columns))
    rows = {
        "wall clock, median (before)": CANDIDATES["median (before)"],
        "wall clock, fastest of ten": CANDIDATES["fastest of ten"],
        "CPU time, median": lambda one: max(statistics.median(rank) for rank in one.cpu),
        "CPU time, fastest of ten": cpu_level,
    }
    for name, figure in rows.items():
        cells = [
            100 * smallest_found(launches, figure, alpha, controlled=controlled)
            for launches in ([one for one in stolen_day() if one.world_size == n] for n in (1, 2))
            for alpha in PAIR_ALPHAS
            for controlled in (False, True)
        ]
        print(f"{name:30}" + "".join(f"{cell:13.1f}" for cell in cells))


def print_bias() -> None:
    """Print how the level depends on the number of steps and on the first ones."""
    sessions = [*neighbours(near=False), *neighbours(near=True)]
    launches = [one for session in sessions for one in session]
    print("\nBias: level of a part of the steps ÷ level of all 120, median over launches, %")
    print(f"{'steps':30}" + "".join(f"{name:>12}" for name in ("level", "minimum", "10th pct.")))
    for name, part in {
        "the first 20": slice(20),
        "the first 30": slice(30),
        "the first 55": slice(55),
        "all but the first 20": slice(20, None),
        "the last 55": slice(-55, None),
    }.items():
        cells = [
            100 * (statistics.median(_part(one, part, of) / of(one.wall) for one in launches) - 1)
            for of in (launch_level, min, lambda steps: float(np.quantile(steps, 0.1)))
        ]
        print(f"{name:30}" + "".join(f"{cell:12.2f}" for cell in cells))


def _part(launch: RecordedLaunch, part: slice, figure: Callable[[Sequence[float]], float]) -> float:
    return figure(launch.wall[part])


def _every(number: int, factor: float) -> Callable[[Sequence[float]], list[float]]:
    return lambda steps: [s * (factor if i % number == 0 else 1) for i, s in enumerate(steps)]


SLOW_STEPS = {
    "every third step 30 % slower": _every(3, 1.3),
    "each tenth step three times as long": _every(10, 3.0),
    "half of the steps 30 % slower": _every(2, 1.3),
    "all steps 10 % slower": _every(1, 1.1),
}


def tail(launch: RecordedLaunch) -> float:
    return statistics.fmean(launch.wall[:STEPS]) / chosen(launch)


def quiet_day(seed: int) -> Sessions:
    """Simulate nine sessions of a quiet machine: sessions, launches and steps differ by 0.5 %."""
    random = np.random.default_rng(seed)
    return [
        [
            RecordedLaunch(
                world_size=1,
                wall=tuple(np.exp(session + launch + random.normal(0, 0.005, STEPS))),
                control=1.0,
            )
            for launch in random.normal(0, 0.005, 5)
        ]
        for session in random.normal(0, 0.005, 9)
    ]


def print_tail() -> None:
    """Print in how many sessions the rule finds slow steps: by the level, or by the tail."""
    print("\nSlow steps: sessions in which the level or the tail is red (tolerance 5 % each)")
    recorded = [of_size(day, n) for day in (calm_day(), neighbours(near=False)) for n in (1, 2)]
    rows = [(sessions, now) for sessions in recorded for now in range(BEFORE, len(sessions))]
    machines = {"recorded": rows, "quiet, simulated": [(quiet_day(seed), 8) for seed in range(56)]}
    for name, slow in {"unchanged": _every(1, 1.0), **SLOW_STEPS}.items():
        cells = [f"{title}: {_red_cells(trials, slow)}" for title, trials in machines.items()]
        print(f"  {name:38}" + "   ".join(cells))


def _red_cells(
    trials: Sequence[tuple[Sessions, int]], slow: Callable[[Sequence[float]], list[float]]
) -> str:
    red: Counter[str] = Counter()
    for sessions, now in trials:
        changed = [
            msgspec.structs.replace(one, wall=tuple(slow(one.wall))) for one in sessions[now]
        ]
        for title, figure in (("level", chosen), ("tail", tail)):
            red[title] += _is_red([*sessions[:now], changed], figure)
    return f"level {red['level']:2}, tail {red['tail']:2} of {len(trials)}"


def _is_red(sessions: Sessions, figure: Figure) -> bool:
    """Judge the newest session by the others. The control follows the level, not the tail."""
    figures = [[figure(launch) for launch in session] for session in sessions]
    controls = [[launch.control for launch in session] for session in sessions]
    verdict = judge_by_figures(
        figures[-1],
        figures[:-1],
        tolerance=TOLERANCE,
        alpha=ALPHA,
        control=controls[-1] if figure is chosen else None,
        baseline_control=controls[:-1] if figure is chosen else None,
        reference=REFERENCE_SESSIONS,
    )
    return verdict.outcome is Outcome.REGRESSION


def main() -> None:
    print(f"Rule: tolerance {TOLERANCE:.0%}, alpha {ALPHA:.1%}, from session {BEFORE + 1} on.")
    print("For one rank, then for two.")
    print_candidates("A calm day (held out)", [calm_day()])
    print_candidates("Another day, without neighbours", [neighbours(near=False)])
    for alpha in ALPHAS:
        print_candidates("Both", [calm_day(), neighbours(near=False)], alpha)
    print_candidates("Beside neighbours", [neighbours(near=True)])
    print_beside_quiet()
    print_stolen()
    print_bias()
    print_tail()


if __name__ == "__main__":
    main()
