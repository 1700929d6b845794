"""Measure interim looks: what they find, what they cost, and their false alarms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from scipy import stats

from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.rule.judge import judge_launches
from ddp_perf.stats.rule.looks import next_look, plan_looks
from tests.quality.families import LAUNCHES, SESSIONS, Floats

TOLERANCE, ALPHA = 0.02, 0.001
FALSE_ALARMS = 0.003
MOST = 4 * LAUNCHES
SLOW_DOWNS = (1.0, 1.03, 1.05)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine whose sessions and launches have these sds, on the log scale."""

    name: str
    sds: Callable[[np.random.Generator], Sequence[float]]


MACHINES = (
    Machine(name="quiet", sds=lambda random: (0.005, 0.005)),
    Machine(name="restless launches", sds=lambda random: (0.003, 0.03)),
    Machine(
        name="mixed, 0.2 to 3 %",
        sds=lambda random: np.exp(random.uniform(np.log(0.002), np.log(0.03), 2)).tolist(),
    ),
)
PLANS = (plan_looks(LAUNCHES, LAUNCHES), plan_looks(LAUNCHES, MOST))
LOOKS_TITLE = (
    f"More launches while undecided, {SESSIONS} sessions of {LAUNCHES} launches,"
    " per cent of trials:\n"
    f"{'machine':24} {'looks at':12}{'alarms':>9}{'+3 %':>9}{'+5 %':>9}{'PASS':>9}{'launches':>10}"
)


def looks_tasks(
    seed: int, trials: int
) -> tuple[list[int], list[tuple[int, ...]], list[int], list[int]]:
    """Return the arguments of `several_looks`: machine and plan by number, seed, trials."""
    machines = [machine for machine in range(len(MACHINES)) for _ in PLANS]
    plans = [*PLANS] * len(MACHINES)
    return machines, plans, [seed] * len(plans), [trials] * len(plans)


def several_looks(
    number: int, looks: tuple[int, ...], seed: int, trials: int
) -> tuple[str, list[str]]:
    """Return a row of the table and the bound that it breaks, if any.

    Rows of a machine share trials.
    """
    machine, random = MACHINES[number], np.random.default_rng(seed)
    found = dict.fromkeys(SLOW_DOWNS, 0)
    passed, launches = 0, []
    for _ in range(trials):
        sessions = _session_levels(random, *machine.sds(random))
        for by in SLOW_DOWNS:
            outcome, taken = _judge(sessions, by, looks)
            found[by] += outcome is Outcome.REGRESSION
            if by == 1.0:
                passed += outcome is Outcome.PASS
                launches.append(taken)
    alarms, *shares = (100 * found[by] / trials for by in SLOW_DOWNS)
    row = f"{machine.name:24} {', '.join(map(str, looks)):12}{alarms:9.2f}"
    row += "".join(f"{share:9.1f}" for share in [*shares, 100 * passed / trials])
    row += f"{np.mean(launches):10.1f}"
    events = found[1.0]
    if events and stats.beta.ppf(0.01, events, trials - events + 1) > FALSE_ALARMS:
        return row, [f"looks at {looks}, {machine.name}: {alarms:.2f} % false alarms"]
    return row, []


def _session_levels(random: np.random.Generator, session: float, launch: float) -> Floats:
    """Draw sessions × launches, the current one last, each with the most launches it may take."""
    levels = random.normal(0, session, SESSIONS + 1)
    return np.exp(levels[:, None] + random.normal(0, launch, (SESSIONS + 1, MOST)))


def _judge(sessions: Floats, by: float, looks: tuple[int, ...]) -> tuple[Outcome, int]:
    """Return the outcome, and how many launches it took. A baseline session has as many as
    the first look."""
    baseline = sessions[:-1, :LAUNCHES, None].tolist()
    look: int | None = looks[0]
    while look is not None:
        launches = look
        verdict = judge_launches(
            (by * sessions[-1, :launches, None]).tolist(),
            baseline,
            tolerance=TOLERANCE,
            alpha=ALPHA,
            looks=looks,
        )
        look = next_look(verdict, launches, looks)
    return verdict.outcome, launches
