"""Measure the two stages of a session together: false alarms, what goes to pairs, what is found.

    python benchmarks/two_stages.py [--trials N] [--cases N] [--seed N] [--only TEXT]

Each trial is one session of a machine of its own: stored sessions, today's, and the pairs of the
cases that today's verdicts send to them. The judges are those of the gate. One trial in four is
judged again with one case that became slower. A session of 480 verdicts takes 24 times as long, so
there are a quarter as many; the last table therefore has the second stage alone: how often pairs
turn a case red, each with its share of the rate. It exits with 1 where the rate of a session is
exceeded beyond chance. The machines were chosen with seed 1; README.md reports seed 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core is all there is to use

import msgspec
import numpy as np

from benchmarks.bounds import Bound, with_interval
from benchmarks.families import Floats
from benchmarks.two_stage_machines import (
    METRICS,
    TIMES,
    Machine,
    draw_pairs,
    draw_sessions,
    slowed,
)
from ddp_perf.core.baseline import LEAST_SESSIONS, REFERENCE_SESSIONS
from ddp_perf.core.metric import metric_spec
from ddp_perf.core.verdict import DuelOutcome, Outcome, SessionPrior, Verdict
from ddp_perf.stats.interval import share_found
from ddp_perf.stats.pairs import PairedPlan, judge_pairs, most_apart, plan_pair_looks
from ddp_perf.stats.rule.error_rate import (
    OF_SESSION,
    alpha_per_metric,
    rate_of_pairs,
    settled_outcome,
    suspicion,
)
from ddp_perf.stats.rule.judge import CaseSessions, MachineSpread
from ddp_perf.stats.rule.levels import WIDE_DEFAULT, Mask
from tests.judging import judge_by_figures

RATE, TOLERANCE, OF_TIME = 0.01, 0.05, 0.75
LOOKS = plan_pair_looks(24)
SLOWER = (0.06, 0.075, 0.10, 0.50)  # 1.2, 1.5, 2 and 10 tolerances
POWER_EVERY = LARGE_EVERY = 4
CHUNK = 20_000  # cases of the second stage alone that are drawn at once
SCREENED = (5, 120)
SLOW, TWO_MODES = (0.01, 0.2), (0.5, 0.1)
# Two ranks on two shared cores: the spreads of step times in benchmarks/data/aa_pairs.jsonl.
AS_RECORDED = Machine(
    name="launches of 4 %, servers of 1.5 %", session=0.03, launch=0.042, servers=0.015
)
RESTLESS = (
    Machine(name="half of launches 10 % slower", slow=TWO_MODES),
    Machine(name="twice as restless", session=0.03, launch=0.03),
    Machine(name="twice as restless, t3", law="t3", session=0.03, launch=0.03),
    Machine(name="launches and servers of 2 %", launch=0.02, servers=0.02),
    AS_RECORDED,
)
MACHINES = (
    Machine(name="independent cases"),
    Machine(name="cases correlated by 0.9", alike=0.9),
    Machine(name="one launch in 100 20 % slower", slow=SLOW),
    Machine(name="drift of 2 % within a day", drift=0.02),
    Machine(name="t3", law="t3"),
    Machine(name="t3, cases correlated by 0.9", law="t3", alike=0.9),
    *RESTLESS,
    *(
        Machine(name=f"{stored} stored{', t3' * (law == 't3')}", law=law, stored=stored)
        for stored in (1, 3, 10)
        for law in ("normal", "t3")
    ),
    Machine(name="480 verdicts", cases=120),
    Machine(name="480, t3, slow, correlated by 0.5", cases=120, law="t3", slow=SLOW, alike=0.5),
)
PAIRS_TITLE = (
    f"The second stage alone, % of sessions with {', '.join(map(str, SCREENED))} screened cases:"
    "\nmachine | cases | " + " | ".join(map(str, SCREENED))
)
TITLE = (
    "machine: sessions | false alarms, % | of stage one | of stage two | sessions alone, %"
    " | to pairs: sessions, % | cases, % | pairs a case | found: tries"
    + "".join(f" | +{100 * by:g} %, alone → both" for by in SLOWER)
)


class FirstStage:
    """A session's verdicts by stored sessions, at a quarter of the rate, and at all of it."""

    def __init__(self, machine: Machine, logs: Floats) -> None:
        self._figures = np.exp(logs)
        self._alpha = alpha_per_metric(RATE, len(METRICS) * machine.cases)
        self._spreads: dict[int, MachineSpread] = {}
        self._priors: dict[tuple[int, int], SessionPrior] = {}

    def verdict(self, metric: int, case: int, factor: float = 1.0) -> Verdict:
        """Return the verdict of today's session, slower by the factor, at a quarter of the rate."""
        return self._judge(metric, case, factor, OF_SESSION)

    def red_alone(self, metric: int, case: int, verdict: Verdict, factor: float = 1.0) -> bool:
        """Return whether it is red at the whole rate; what passes at a quarter is not."""
        if verdict.outcome.is_open:
            verdict = self._judge(metric, case, factor, 1.0)
        return verdict.outcome is Outcome.REGRESSION

    def _judge(self, metric: int, case: int, factor: float, share: float) -> Verdict:
        figures = self._figures[metric, case]
        if METRICS[metric] == "peak_memory" and not could_be_red(figures):
            return Verdict(outcome=Outcome.PASS, reason="the figures are within the tolerance")
        return judge_by_figures(
            (factor * figures[-1]).tolist(),
            figures[:-1].tolist(),
            tolerance=TOLERANCE,
            alpha=share * self._alpha,
            reference=REFERENCE_SESSIONS,
            prior=self._prior(metric, case),
        )

    def _prior(self, metric: int, case: int) -> SessionPrior:
        """Return the prior as the gate takes it: an assumed one while little is known."""
        if (metric, case) not in self._priors:
            prior, freedom = self._spread(metric).prior(case), WIDE_DEFAULT.degrees_of_freedom
            few = self._figures.shape[2] - 1 < LEAST_SESSIONS
            if prior is None or (few and prior.degrees_of_freedom < freedom):
                sd = metric_spec(METRICS[metric]).assumed_sd
                prior = SessionPrior(sd=sd, degrees_of_freedom=freedom, assumed=True)
            self._priors[metric, case] = prior
        return self._priors[metric, case]

    def _spread(self, metric: int) -> MachineSpread:
        if metric not in self._spreads:
            cases = self._figures[metric, :, :-1].tolist()
            days = [str(day) for day in range(len(cases[0]))]
            self._spreads[metric] = MachineSpread(
                [CaseSessions(sessions=case, days=days, tolerance=TOLERANCE) for case in cases]
            )
        return self._spreads[metric]


def could_be_red(figures: Floats) -> bool:
    """Return False if all launches are within the tolerance: no level is beyond it then."""
    return bool(figures.max() >= (1 + TOLERANCE) * figures.min())


def plans_of(cases: int) -> tuple[PairedPlan, ...]:
    """Return the plan of each metric of one of so many screened cases: the time has most of it."""
    rate = rate_of_pairs(RATE, cases)
    others = (1 - OF_TIME) / (len(METRICS) - 1)
    shares = [OF_TIME if name == "step_time" else others for name in METRICS]
    return tuple(PairedPlan(alpha=rate * part, tolerance=TOLERANCE, looks=LOOKS) for part in shares)


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A case after its pairs: whether it is red, by which of the stages, and the pairs it took."""

    red: bool
    by_pairs: bool
    pairs: int


def is_screened(verdicts: Sequence[Verdict]) -> bool:
    """Return whether one of the times of a case sends it to the second stage."""
    return any(suspicion(verdict, TOLERANCE) is not None for verdict in verdicts[:TIMES])


def settle(verdicts: Sequence[Verdict], pairs: Floats, plans: Sequence[PairedPlan]) -> Settled:
    """Settle the metrics of a screened case by its pairs (metrics × pairs)."""
    paired = [judge_pairs(logs, plan) for logs, plan in zip(pairs.tolist(), plans, strict=True)]
    red = [
        settled_outcome(new, verdict.outcome, TOLERANCE) is Outcome.REGRESSION
        for new, verdict in zip(paired, verdicts, strict=True)
    ]
    return Settled(
        red=any(red),
        by_pairs=any(
            one and new.outcome is DuelOutcome.SLOWER for one, new in zip(red, paired, strict=True)
        ),
        pairs=max(new.pairs for new in paired),
    )


def simulate(machine: Machine, random: np.random.Generator, *, power: bool) -> Counter[str]:
    """Count what one session shows, and what it finds of one slower case if ``power``."""
    stage = FirstStage(machine, draw_sessions(machine, random))
    cases = [
        [stage.verdict(metric, case) for metric in range(len(METRICS))]
        for case in range(machine.cases)
    ]
    screened = [case for case in range(machine.cases) if is_screened(cases[case])]
    first = [any(one.outcome is Outcome.REGRESSION for one in verdicts) for verdicts in cases]
    settled: list[Settled] = []
    if screened:
        plans, pairs = plans_of(len(screened)), draw_pairs(machine, random, len(screened), LOOKS)
        settled = [settle(cases[case], pairs[:, i], plans) for i, case in enumerate(screened)]
    kept = any(red for case, red in enumerate(first) if case not in screened)
    alone = any(
        stage.red_alone(metric, case, verdict)
        for case, verdicts in enumerate(cases)
        for metric, verdict in enumerate(verdicts)
    )
    counted = Counter(
        sessions=1,
        alone=alone,
        first=any(first),
        second=any(one.by_pairs for one in settled),
        both=kept or any(one.red for one in settled),
        to_pairs=bool(screened),
        screened=len(screened),
        pairs=sum(one.pairs for one in settled),
    )
    if power:
        others = len([case for case in screened if case != 0])
        counted.update(_found(machine, random, stage, cases[0], others))
    return counted


def _found(
    machine: Machine,
    random: np.random.Generator,
    stage: FirstStage,
    unchanged: Sequence[Verdict],
    others: int,
) -> Counter[str]:
    """Count what is found of the first case if it is slower, beside so many other screened ones."""
    counted = Counter(tries=1)
    drawn = draw_pairs(machine, random, 1, LOOKS)
    for by in SLOWER:
        factors = np.exp(slowed(np.zeros(len(METRICS)), by)).tolist()
        verdicts = [
            stage.verdict(metric, 0, factor) if factor > 1 else unchanged[metric]
            for metric, factor in enumerate(factors)
        ]
        red = any(one.outcome is Outcome.REGRESSION for one in verdicts)
        if is_screened(verdicts):
            red = settle(verdicts, slowed(drawn, by)[:, 0], plans_of(others + 1)).red
        counted[f"both {by}"] += red
        counted[f"alone {by}"] += any(
            stage.red_alone(metric, 0, verdict, factor)
            for metric, (verdict, factor) in enumerate(zip(verdicts, factors, strict=True))
        )
    return counted


def may_be_red(logs: Floats, plan: PairedPlan) -> Mask:
    """Return for cases × pairs whether pairs could be SLOWER by the tolerance: few of many are.

    At some look the mean without the lowest pairs, as many as may be set apart, must be that high.
    """
    possible: Mask = np.zeros(len(logs), dtype=bool)
    for look in plan.looks:
        apart = most_apart(look, plan.alpha / len(plan.looks))
        if apart is not None:
            highest = np.sort(logs[:, :look], axis=1)[:, apart:]
            possible |= highest.mean(axis=1) >= plan.margin - 1e-9
    return possible


def count_red(machine: Machine, screened: int, seed: int, cases: int) -> int:
    """Count the cases that their pairs alone turn red, each one of so many screened ones."""
    random, red = np.random.default_rng([seed, screened]), 0
    for start in range(0, cases, CHUNK):
        drawn = draw_pairs(machine, random, min(CHUNK, cases - start), LOOKS)
        reds = np.zeros(drawn.shape[1], dtype=bool)
        for logs, plan in zip(drawn, plans_of(screened), strict=True):
            for case in np.flatnonzero(may_be_red(logs, plan)):
                paired = judge_pairs(logs[case].tolist(), plan)
                settled = settled_outcome(paired, Outcome.PASS, TOLERANCE)
                reds[case] |= settled is Outcome.REGRESSION
        red += int(reds.sum())
    return red


def row_of_pairs(machine: Machine, seed: int, cases: int) -> tuple[str, bool]:
    """Return a row: the rate of a session's pairs, of so many screened cases; whether it holds."""
    cells, holds = [machine.name, str(cases)], True
    for screened in SCREENED:
        red = count_red(machine, screened, seed, cases)
        share = share_found(red, cases)
        low, high = (100 * screened * bound for bound in share.interval)
        cells.append(f"{100 * screened * red / cases:.2f} ({low:.2f}–{high:.2f})")
        holds &= not Bound(rate=rate_of_pairs(RATE, screened)).exceeded(red, cases)
    return " | ".join(cells), holds


def count(machine: Machine, seed: int, trials: int) -> Counter[str]:
    random = np.random.default_rng([seed, MACHINES.index(machine)])
    return _sum(
        simulate(machine, random, power=trial % POWER_EVERY == 0) for trial in range(trials)
    )


def _sum(counts: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total


def row(machine: Machine, counted: Counter[str]) -> str:
    """Return a row: alarms of both stages and of each, what goes to pairs, and what is found."""
    trials, tries = counted["sessions"], counted["tries"]
    cells = [
        f"{machine.name}: {trials}",
        f"{with_interval(counted['both'], trials, 2)} {inside(counted['both'], trials)}",
        *(f"{100 * counted[what] / trials:.2f}" for what in ("first", "second")),
        with_interval(counted["alone"], trials, 2),
        f"{100 * counted['to_pairs'] / trials:.0f}",
        f"{100 * counted['screened'] / (trials * machine.cases):.1f}",
        f"{counted['pairs'] / max(1, counted['screened']):.1f}",
        str(tries),
    ]
    for by in SLOWER:
        alone = 100 * counted[f"alone {by}"] / tries
        cells.append(f"{alone:.0f} → {with_interval(counted[f'both {by}'], tries, 0)}")
    return " | ".join(cells)


def inside(alarms: int, trials: int) -> str:
    """Return whether the rate of a session is shown to hold, exceeded beyond chance, or neither."""
    if Bound(rate=RATE).exceeded(alarms, trials):
        return "EXCEEDED"
    return "shown" if share_found(alarms, trials).interval[1] <= RATE else "not contradicted"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=2000, help="sessions a row; 0: pairs alone")
    parser.add_argument(
        "--cases", type=int, default=100_000, help="of a row of pairs (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of all simulations (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="machines with it")
    options = parser.parse_args()
    broken: list[str] = []
    print(TITLE)
    for machine in (one for one in MACHINES if options.trials and options.only in one.name):
        trials = options.trials // (LARGE_EVERY if machine.cases > 100 else 1)
        counted = count(machine, options.seed, trials)
        print(row(machine, counted), flush=True)
        broken += [machine.name] if inside(counted["both"], trials) == "EXCEEDED" else []
    print(f"\n{PAIRS_TITLE}")
    for machine in (one for one in RESTLESS if options.only in one.name):
        text, holds = row_of_pairs(machine, options.seed, options.cases)
        print(text, flush=True)
        broken += [] if holds else [f"{machine.name}: pairs"]
    print("\n".join(["\nBroken:", *broken]) if broken else "\nNo rate is exceeded.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
