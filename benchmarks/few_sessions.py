"""Measure what the other cases of a machine bring while there are few sessions, and what they cost.

The cases of a machine share its sessions, so the false alarms are measured with correlated cases.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy import stats

from benchmarks.families import LAUNCHES
from ddp_perf.core.verdict import Outcome, SessionPrior
from ddp_perf.stats.rule.error_rate import alpha_per_metric
from ddp_perf.stats.rule.judge import CaseSessions, MachineSpread
from tests.judging import judge_by_figures

TOLERANCE, LAUNCH = 0.02, 0.005
ALPHA = alpha_per_metric(0.01, 20)
FALSE_ALARMS = 0.005  # three sessions in which all cases move together are above their level
JUDGED = 4  # cases of a machine
MACHINES = 500
# cases, sessions, sd of the sessions, correlation of the cases
MACHINES_OF = (
    (4, 3, 0.01, 0.0),
    (4, 3, 0.01, 0.9),
    (20, 3, 0.005, 0.0),
    (20, 3, 0.005, 0.9),
    (20, 3, 0.01, 0.9),
    (20, 8, 0.01, 0.9),
)


def moderation_tasks(
    seed: int,
) -> tuple[list[int], list[tuple[int, int, float, float]]]:
    """Return the arguments of `moderation` for each kind of machine."""
    return [seed] * len(MACHINES_OF), list(MACHINES_OF)


def moderation(seed: int, machine: tuple[int, int, float, float]) -> tuple[str, list[str]]:
    """Share 1 % false alarms among 20 verdicts; judge with and without the other cases."""
    cases, sessions, sd, correlation = machine
    random = np.random.default_rng(seed)
    counted: Counter[tuple[bool, float, Outcome]] = Counter()
    for _ in range(MACHINES):
        sds = sd * np.sqrt(10 / random.chisquare(10, (cases, 1)))
        common = np.sqrt(correlation) * random.normal(size=(1, sessions + 1))
        moods = common + np.sqrt(1 - correlation) * random.normal(size=(cases, sessions + 1))
        noise = random.normal(0, LAUNCH, (cases, sessions + 1, LAUNCHES))
        figures = np.exp((sds * moods)[..., None] + noise)
        days = [str(day) for day in range(sessions)]
        spread = MachineSpread(
            [
                CaseSessions(sessions=case[:-1].tolist(), days=days, tolerance=TOLERANCE)
                for case in figures
            ]
        )
        for case in range(JUDGED):
            for slower in (1.0, 1.05, 1.10):
                for prior in (None, spread.prior(case)):
                    outcome = _judged(figures[case], slower, prior)
                    counted[prior is not None, slower, outcome] += 1
    trials = JUDGED * MACHINES
    alarms = counted[True, 1.0, Outcome.REGRESSION]
    low = float(stats.beta.ppf(0.025, alarms, trials - alarms + 1)) if alarms else 0.0
    high = float(stats.beta.ppf(0.975, alarms + 1, trials - alarms))
    found = [
        f"{100 * counted[False, slower, Outcome.REGRESSION] / trials:.0f} → "
        f"{100 * counted[True, slower, Outcome.REGRESSION] / trials:.0f}"
        for slower in (1.05, 1.10)
    ]
    text = (
        f"{cases:2} cases of correlation {correlation}, {sessions} sessions of {100 * sd:g} %:"
        f" false alarms {100 * alarms / trials:.2f} % ({100 * low:.2f} to {100 * high:.2f}) of"
        f" {trials} verdicts at a level of {100 * ALPHA:.2g} %; found without and with the other"
        f" cases: +5 % {found[0]}, +10 % {found[1]} %"
    )
    return text, [text] if low > FALSE_ALARMS else []


def _judged(figures: np.ndarray, slower: float, prior: SessionPrior | None) -> Outcome:
    return judge_by_figures(
        (slower * figures[-1]).tolist(),
        figures[:-1].tolist(),
        tolerance=TOLERANCE,
        alpha=ALPHA,
        prior=prior,
    ).outcome
