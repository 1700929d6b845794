"""Measure three sessions with and without moderation, and slow drift over sixty sessions."""

from __future__ import annotations

import numpy as np

from ddp_perf.core.verdict import Outcome, SessionPrior
from ddp_perf.stats.rule.alpha_spending import alpha_per_metric
from ddp_perf.stats.rule.inputs import typical_values
from ddp_perf.stats.rule.judge import judge_launches
from ddp_perf.stats.rule.machine_prior import CaseSessions, machine_prior
from tests.quality.families import LAUNCHES, Floats

TOLERANCE = 0.02
CASES, FEW = 20, 3
SERIES, LONG, REFERENCE = 60, 60, 5


def _medians(random: np.random.Generator, levels: Floats, launch: float) -> list[list[list[float]]]:
    """Return sessions × launches × one value, as a baseline stores them."""
    logs = levels[:, None] + random.normal(0, launch, (len(levels), LAUNCHES))
    sessions: list[list[list[float]]] = np.exp(logs)[..., None].tolist()
    return sessions


def moderation(seed: int, machines: int = 60) -> tuple[str, list[str]]:
    """Share 1 % false alarms among all cases, whose between-session sds differ by a third."""
    random = np.random.default_rng(seed)
    alpha = alpha_per_metric(0.01, CASES)
    detectable: dict[str, list[float]] = {"before": [], "after": []}
    alarms, found = {"before": 0, "after": 0}, {"before": 0, "after": 0}
    for _ in range(machines):
        sds = 0.005 * np.sqrt(10 / random.chisquare(10, CASES))
        cases = [_medians(random, random.normal(0, sd, FEW + 1), 0.005) for sd in sds]
        sessions = [
            CaseSessions(sessions=[typical_values(one) for one in case[:-1]], tolerance=TOLERANCE)
            for case in cases
        ]
        priors: dict[str, SessionPrior | None] = {"before": None, "after": machine_prior(sessions)}
        for when, prior in priors.items():
            for case in cases:
                slower = [[value[0] * 1.05] for value in case[-1]]
                plain, slow = (
                    judge_launches(now, case[:-1], tolerance=TOLERANCE, alpha=alpha, prior=prior)
                    for now in (case[-1], slower)
                )
                detectable[when].append(plain.minimum_detectable or np.inf)
                alarms[when] += plain.outcome is Outcome.REGRESSION
                found[when] += slow.outcome is Outcome.REGRESSION
    judged = machines * CASES
    lines = [f"{FEW} sessions, {CASES} cases, 1 % false alarms a session (alpha {alpha:.2g} each):"]
    lines += [
        f"  {when:6} moderation: minimum detectable {100 * np.median(detectable[when]):4.1f} % "
        f"(median), +5 % found {100 * found[when] / judged:5.1f} %, "
        f"false alarms {100 * alarms[when] / machines:.1f} % of sessions"
        for when in ("before", "after")
    ]
    held = alarms["after"] <= 0.06 * machines  # 1 % claimed; more than this is not chance
    return "\n".join(lines), [] if held else ["moderation raises the false alarms"]


def drift_found(seed: int) -> tuple[str, list[str]]:
    """Judge a drift of 0.2 % a session. The first five are the reference, all give the variance."""
    found = {True: 0, False: 0}
    for drifts in (True, False):
        random = np.random.default_rng(seed)
        for _ in range(SERIES):
            levels = random.normal(0, 0.005, LONG) + np.log(1.002) * drifts * np.arange(LONG)
            sessions = _medians(random, levels, 0.005)
            found[drifts] += any(
                judge_launches(
                    sessions[session],
                    sessions[:session],
                    tolerance=TOLERANCE,
                    alpha=0.001,
                    reference=REFERENCE,
                ).outcome
                is Outcome.REGRESSION
                for session in range(REFERENCE, LONG)
            )
    text = (
        f"Slow drift of 0.2 % a session, {LONG} sessions, level frozen at the first {REFERENCE}:"
        " found "
        f"in {100 * found[True] / SERIES:.0f} % of {SERIES} series; without drift an alarm in "
        f"{100 * found[False] / SERIES:.0f} % of series ({LONG - REFERENCE} verdicts each)"
    )
    return text, [] if found[True] >= 0.95 * SERIES else ["slow drift is found too rarely"]
