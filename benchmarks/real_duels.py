"""Real duels of real commits: of equal ones, and of some that are slower by exact work.

``python benchmarks/real_duels.py DIRECTORY [--rounds N] [--ranks 1|2] [--slower 0 3 5 10]``
makes a git repository in DIRECTORY, runs ``ddp-perf duel base BRANCH`` in it once a round for each
branch, in turn, and prints what they found and how long they took. A second run adds to the first.

It then asks the gate the same question, of the same launches: sessions of five launches of the base
are stored, and one session of a branch is judged. All of them are of one day, so that sessions
differ less than on other days, and the gate does better here than in real use.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bounds import with_interval
from ddp_perf.core.verdict import DuelOutcome, Outcome
from ddp_perf.duel.values import CaseDuel, Duel, MetricDuel, read_duel
from ddp_perf.stats.rule.levels import WIDE_DEFAULT
from ddp_perf.stats.summary import summarise
from tests.judging import judge_by_figures

ROOT = Path(__file__).parents[1]
COMMAND = "from ddp_perf.cli.app import app; app()"
TOLERANCE, ALPHA = 0.05, 0.01
LAUNCHES, TRIALS, STORED = 5, 500, (1, 3, 8)
SUITE = """
suite: rows
tier: cpu
workload: perf_workload:build
world_sizes: [1, 2]
batch_sizes: [256]
tolerances: {step_time: 0.10, tail: 0.15, efficiency: 0.10, cpu_time: 0.10, peak_memory: 0.05}
"""
WORKLOAD = """import torch
from torch import nn

from ddp_perf.workloads.workload import BuildContext, Workload

MORE = 1.00  # times the rows of each matrix product: nearly the whole step


def build(context: BuildContext) -> Workload:
    layers = [nn.Sequential(nn.Linear(384, 384), nn.ReLU()) for _ in range(4)]
    rows = round(context.batch_size * MORE)
    return Workload(
        model=nn.Sequential(*layers).to(context.device),
        batch=(torch.randn(rows, 384, device=context.device),),
        loss=lambda module, batch: module(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-4),
    )
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=2, choices=(1, 2))
    parser.add_argument("--slower", type=int, nargs="+", default=[0, 3, 5, 10], help="per cent")
    given = parser.parse_args()
    project = given.directory / "project"
    if not project.exists():
        _make(project)
    for _ in range(given.rounds):
        for slower in given.slower:
            _duel(given.directory, slower, given.ranks)
    found = {
        (ranks, slower): [
            read_duel(path) for path in sorted(_results(given.directory, slower, ranks))
        ]
        for ranks in (1, 2)
        for slower in (0, 3, 5, 10)
    }
    _print_duels({what: duels for what, duels in found.items() if duels})
    for ranks in (1, 2):
        _print_gate(ranks, {slower: found[ranks, slower] for slower in (0, 3, 5, 10)})
    return 0


def _make(project: Path) -> None:
    (project / "bench_configs").mkdir(parents=True)
    (project / "bench_configs" / "rows.yaml").write_text(SUITE, encoding="utf-8")
    (project / ".gitignore").write_text("artifacts/\n", encoding="utf-8")
    _git(project, "init", "-q", "-b", "base")
    for branch, more in {"base": 1.00, "slower3": 1.03, "slower5": 1.05, "slower10": 1.10}.items():
        if branch != "base":
            _git(project, "checkout", "-q", "-b", branch, "base")
        source = WORKLOAD.replace("1.00", f"{more:.2f}")
        (project / "perf_workload.py").write_text(source, encoding="utf-8")
        _git(project, "add", "-A")
        _git(project, "commit", "-q", "-m", f"Rows times {more:.2f}")
    _git(project, "checkout", "-q", "base")


def _git(project: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Ada Lovelace", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", "-C", str(project), *who, *arguments], check=True)


def _results(directory: Path, slower: int, ranks: int) -> list[Path]:
    return list((directory / f"results-{ranks}-{slower}").glob("*.json"))


def _duel(directory: Path, slower: int, ranks: int) -> None:
    """Run one duel, and move its results file to those of its kind."""
    project = (directory / "project").resolve()
    case = f"perf_workload.build-{'ddp' if ranks > 1 else 'none'}-fp32-ws{ranks}-b256"
    side = f"slower{slower}" if slower else "."
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str((directory / "cache").resolve()),
    }
    for left in (project / "artifacts").glob("duel/*.json"):
        left.unlink()  # of a run that was ended
    command = [sys.executable, "-c", COMMAND, "duel", "base", side, "--case", case]
    subprocess.run(command, cwd=project, env=environ, stdout=subprocess.DEVNULL, check=False)
    kept = directory / f"results-{ranks}-{slower}"
    kept.mkdir(exist_ok=True)
    for path in (project / "artifacts" / "duel").glob("*.json"):
        path.replace(kept / path.name)


def _print_duels(found: dict[tuple[int, int], list[Duel]]) -> None:
    print(
        "ranks  more rows  duels  FASTER  EQUIVALENT  SLOWER  UNDECIDED  by CPU time   B ÷ A  time"
    )
    for (ranks, slower), duels in found.items():
        outcomes = Counter(duel.outcome for duel in duels)
        deciding = [_deciding(duel.cases[0]) for duel in duels]
        ratios = [one.verdict.ratio for one in deciding if one.verdict.ratio is not None]
        walls = sorted(duel.wall_s for duel in duels)
        print(
            f"{ranks:5}{slower:9} %{len(duels):7}"
            + "".join(
                f"{outcomes[outcome]:{width}}"
                for outcome, width in (
                    (DuelOutcome.FASTER, 8),
                    (DuelOutcome.EQUIVALENT, 12),
                    (DuelOutcome.SLOWER, 8),
                    (DuelOutcome.UNDECIDED, 11),
                )
            )
            + f"{sum(one.metric == 'cpu_time' for one in deciding):8}"
            + f"{statistics.median(ratios):8.3f}"
            + f"  {statistics.median(walls):.0f} s, {walls[-1]:.0f} s"
        )


def _deciding(case: CaseDuel) -> MetricDuel:
    """Return the verdict on the time of the step that decides."""
    times = [one for one in case.metrics if one.metric in ("step_time", "cpu_time") and one.decides]
    return times[0]


def _print_gate(ranks: int, found: dict[int, list[Duel]]) -> None:
    """Print how often one session of five launches is red, beside so many stored ones."""
    stored = _figures(found[0], "A") + _figures(found[0], "B")
    if len(stored) < LAUNCHES * (1 + max(STORED)):
        return
    for slower, duels in found.items():
        current = _figures(duels, "B")
        if len(current) < 2 * LAUNCHES:
            continue
        for sessions in STORED:
            red = sum(_is_red(stored, current, sessions, seed) for seed in range(TRIALS))
            print(
                f"the gate, {ranks} ranks, {sessions} stored, +{slower} % rows:"
                f" red in {with_interval(red, TRIALS)} % of {TRIALS} draws"
            )


def _figures(duels: Sequence[Duel], side: str) -> list[float]:
    """Return the CPU time of each launch of a side, which is steadier here than wall time."""
    launches = [pair.a if side == "A" else pair.b for duel in duels for pair in duel.cases[0].pairs]
    return [
        summarise(launch, samples_per_step=1, single=None).values["cpu_time"] for launch in launches
    ]


def _is_red(stored: Sequence[float], current: Sequence[float], sessions: int, seed: int) -> bool:
    draw = random.Random(seed)
    before = draw.sample(stored, sessions * LAUNCHES)
    verdict = judge_by_figures(
        draw.sample(current, LAUNCHES),
        [before[start : start + LAUNCHES] for start in range(0, len(before), LAUNCHES)],
        tolerance=TOLERANCE,
        alpha=ALPHA,
        prior=WIDE_DEFAULT if sessions < 3 else None,
    )
    return verdict.outcome is Outcome.REGRESSION


if __name__ == "__main__":
    sys.exit(main())
