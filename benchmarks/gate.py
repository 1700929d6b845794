"""Measure how often the gate is wrong, and what it finds, beside other tools on the same data.

``python benchmarks/gate.py [--trials N] [--seed N]`` prints a table per kind of machine, and
what the machine's other cases bring while there are few sessions. It exits with 1 where one of our
own stated bounds is broken beyond what chance explains. These are single comparisons; `months.py`
simulates the life of a gate. The rule was tuned on seed 1; README.md reports seed 2.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core is all there is to use

import msgspec
import numpy as np
from scipy import stats

from benchmarks.families import FAMILIES, Family, Trial
from benchmarks.few_sessions import moderation, moderation_tasks
from benchmarks.looks import LOOKS_TITLE, looks_tasks, several_looks
from benchmarks.peers import all_peers
from ddp_perf.core.verdict import Outcome, SessionPrior
from ddp_perf.stats.rule.comparison import launch_levels, launch_medians
from ddp_perf.stats.rule.judge import CaseSessions, MachineSpread
from tests.judging import judge as judge_values

OURS, WITH_PRIOR = "this gate", "this gate, 20 cases"
TOLERANCE, ALPHA = 0.02, 0.001
SLOW_DOWNS = (1.0, 1.03, 1.05, 1.10, 1.20)
FALSE_ALARMS = ALPHA  # ours, in every family that claims a bound
PASS_AT_TEN_PERCENT = 0.005
CHUNK = 50  # trials a task
PEERS_EVERY = 5  # tasks: their rates are larger and need fewer trials, and their code is slow
NAMES = {family.name: family for family in FAMILIES}
PEERS = tuple(all_peers())


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Regressions found by method and slow-down; our outcomes by slow-down."""

    trials: int
    peer_trials: int
    found: Counter[tuple[str, float]]
    outcomes: Counter[tuple[str, float]]

    def share(self, method: str, slow_down: float) -> float:
        trials = self.trials if method in (OURS, WITH_PRIOR) else self.peer_trials
        return self.found[method, slow_down] / trials

    def outcome(self, outcome: Outcome, slow_down: float) -> float:
        return self.outcomes[outcome.value, slow_down] / self.trials


def judge(trial: Trial, slow_down: float, prior: SessionPrior | None = None) -> Outcome:
    control = None if trial.control is None else trial.control.tolist()
    return judge_values(
        (trial.sessions[-1] * slow_down).tolist(),
        trial.sessions[:-1].tolist(),
        control=None if control is None else control[-1],
        baseline_control=None if control is None else control[:-1],
        tolerance=TOLERANCE,
        alpha=ALPHA,
        prior=prior,
    ).outcome


def prior_of(family: Family, random: np.random.Generator) -> SessionPrior | None:
    """Return the prior of a case from twenty others of such a machine, which move independently."""
    trials = [family.draw(random) for _ in range(20)]
    others = [
        CaseSessions(
            sessions=[launch_levels(one) for one in trial.sessions[:-1].tolist()],
            days=[str(day) for day in range(len(trial.sessions) - 1)],
            control=None
            if trial.control is None
            else [launch_medians(one) for one in trial.control[:-1].tolist()],
            tolerance=TOLERANCE,
        )
        for trial in trials
    ]
    return MachineSpread(others).prior(None)


def count(name: str, seed: int, trials: int, peers: bool) -> Counts:
    """Count the verdicts of our rule, and of the peers if wanted, on the same trials."""
    random = np.random.default_rng(seed)
    found: Counter[tuple[str, float]] = Counter()
    outcomes: Counter[tuple[str, float]] = Counter()
    prior = prior_of(NAMES[name], random)
    for _ in range(trials):
        trial = NAMES[name].draw(random)
        for slow_down in SLOW_DOWNS:
            outcome = judge(trial, slow_down)
            outcomes[outcome.value, slow_down] += 1
            found[OURS, slow_down] += outcome is Outcome.REGRESSION
            if slow_down > 1.10:
                continue
            found[WITH_PRIOR, slow_down] += judge(trial, slow_down, prior) is Outcome.REGRESSION
            if not peers:
                continue
            current, newest = trial.sessions[-1] * slow_down, trial.sessions[-2]
            for peer in PEERS:
                if peer.slower is not None:
                    found[peer.name, slow_down] += peer.slower(current, newest)
    return Counts(trials=trials, peer_trials=trials * peers, found=found, outcomes=outcomes)


def count_all(pool: concurrent.futures.Executor, family: Family, seed: int, trials: int) -> Counts:
    tasks = range(-(-trials // CHUNK))
    seeds = [int(word) for word in np.random.SeedSequence(seed).generate_state(len(tasks))]
    with_peers = [task % PEERS_EVERY == 0 for task in tasks]
    names, chunks = [family.name] * len(tasks), [CHUNK] * len(tasks)
    parts = list(pool.map(count, names, seeds, chunks, with_peers))
    return Counts(
        trials=sum(part.trials for part in parts),
        peer_trials=sum(part.peer_trials for part in parts),
        found=sum((part.found for part in parts), Counter()),
        outcomes=sum((part.outcomes for part in parts), Counter()),
    )


def rows(family: Family, counts: Counts) -> Iterator[str]:
    for method in [OURS, WITH_PRIOR, *(peer.name for peer in PEERS if peer.slower)]:
        shares = "".join(f"{100 * counts.share(method, by):9.1f}" for by in SLOW_DOWNS[1:4])
        alarms = f"{100 * counts.share(method, 1.0):9.2f}"
        line = f"{family.name:24} {method:26}{alarms}{shares}"
        if method == OURS:
            passed = [counts.outcome(Outcome.PASS, by) for by in (1.0, 1.10)]
            decided = sum(
                counts.outcome(outcome, 1.0)
                for outcome in (Outcome.PASS, Outcome.IMPROVEMENT, Outcome.REGRESSION)
            )
            line += f"{100 * passed[0]:9.1f}{100 * passed[1]:9.2f}{100 * (1 - decided):9.1f}"
            line += f"{100 * counts.share(OURS, 1.20):9.1f}"
        yield line


def broken_bounds(family: Family, counts: Counts) -> Iterator[str]:
    """Return the bounds that our figures exceed beyond chance (one-sided Clopper–Pearson, 99 %)."""
    claims = (
        ("false alarms", counts.found[OURS, 1.0], FALSE_ALARMS),
        ("false alarms with 20 cases", counts.found[WITH_PRIOR, 1.0], FALSE_ALARMS),
        ("PASS at +10 %", counts.outcomes[Outcome.PASS.value, 1.10], PASS_AT_TEN_PERCENT),
    )
    for what, events, bound in claims:
        if events and stats.beta.ppf(0.01, events, counts.trials - events + 1) > bound:
            share = events / counts.trials
            yield f"{family.name}: {what} {100 * share:.2f} %, claimed {100 * bound:.1f} %"


def dominated(family: Family, counts: Counts) -> Iterator[str]:
    """Return the peers with fewer false alarms that find no less anywhere and more somewhere."""
    found = SLOW_DOWNS[1:4]
    for peer in PEERS:
        fewer = counts.share(peer.name, 1.0) < counts.share(OURS, 1.0)
        gains = [counts.share(peer.name, by) - counts.share(OURS, by) for by in found]
        if peer.slower and fewer and min(gains) >= 0 and max(gains) > 0:
            yield f"{family.name}: {peer.name} alarms less and finds more"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1000, help="per family (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all simulations (%(default)s)")
    options = parser.parse_args()
    print(
        f"Per cent of {options.trials} trials; tolerance 2 %, alpha 0.1 %, 5 launches × 50 values"
    )
    print("against 8 sessions. The other tools compare this session with the newest stored one, on")
    print(f"every {PEERS_EVERY}th block of trials.")
    for peer in PEERS:
        if peer.slower is None:
            print(f"{peer.name}: not installed ({peer.remedy})")
    header = ("alarms", "+3 %", "+5 %", "+10 %", "PASS", "PASS+10", "undecid.", "+20 %")
    print(f"\n{'machine':24} {'method':26}" + "".join(f"{title:>9}" for title in header))
    broken: list[str] = []
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for family in FAMILIES:
            counts = count_all(pool, family, options.seed, options.trials)
            print("\n".join(rows(family, counts)), flush=True)
            if family.bounded:
                broken += [*broken_bounds(family, counts), *dominated(family, counts)]
        print()
        for text, failures in pool.map(moderation, *moderation_tasks(options.seed)):
            print(text, flush=True)
            broken += failures
        print(f"\n{LOOKS_TITLE}")
        for text, failures in pool.map(several_looks, *looks_tasks(options.seed, options.trials)):
            print(text, flush=True)
            broken += failures
    print("\n".join(["", "Broken:", *broken]) if broken else "\nEvery stated bound holds.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
