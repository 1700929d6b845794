"""The sentence of each branch of the rule, in a golden file: read it as who sees a red build."""

from __future__ import annotations

import textwrap

from ddp_perf.stats.rule.levels import WIDE_DEFAULT
from ddp_perf.stats.rule.two_sides import judge_sides
from tests.judging import judge, judge_by_figures
from tests.unit.stats.rule.machine import scaled, simulated_sessions

RULE = {"tolerance": 0.02, "alpha": 0.001}
QUIET = [1.0, 1.01, 0.99, 1.005, 0.995]
SLOW_MODE = [1.0, 1.01, 1.5, 1.51, 1.49]


def lines(verdicts):
    return "\n\n".join(
        textwrap.fill(f"{title}: {one.outcome.value}: {one.reason}", 80)
        for title, one in verdicts.items()
    )


def stored(*, seed=4, sessions=8, now=1.0, **options):
    """Return the verdict on a session ``now`` times as slow as those before, or on its launches."""
    machine = {key: options.pop(key) for key in ("session", "launch") if key in options}
    *before, current = simulated_sessions(sessions + 1, seed=seed, **machine)
    by = now if isinstance(now, list) else [now] * 5
    current = [scaled([launch], each)[0] for launch, each in zip(current, by, strict=True)]
    return judge(current, before, **RULE, **options)


def moved(by, *, seed):
    """Return the verdict on a session half-way; the reference moved after its second session."""
    *before, current = simulated_sessions(9, seed=seed, launch=0.03, session=0.002)
    before = [scaled(one, by if place >= 2 else 1) for place, one in enumerate(before)]
    return judge(scaled(current, (1 + by) / 2), before, **RULE, reference=5)


def with_control(*, moved, seed):
    """Return the verdict beside a control that moved, which the case followed in each session."""
    moves = [1.0, 0.95, 1.06, 0.98, 1.03, 1.01, 0.94, 1.05, moved]
    *before, current = [
        scaled(session, by)
        for session, by in zip(simulated_sessions(9, seed=seed), moves, strict=True)
    ]
    *controls, control = [[[by], [by * 1.001]] for by in moves]
    return judge(current, before, control=control, baseline_control=controls, **RULE)


def test_the_sentences_of_a_session_against_stored_ones(file_regression):
    modes = [[*QUIET[:4], 1.4] if place in (1, 4, 6) else QUIET for place in range(12)]
    slower = [1.4 * step for step in QUIET]
    verdicts = {
        "much slower": stored(now=1.3),
        "slower, most launches far slower": stored(now=[1.1, *[1.6] * 4]),
        "slower": stored(now=1.022, seed=1),
        "more slow launches than ever": stored(now=[1.0, *[1.5] * 4]),
        "one mode slower": judge_by_figures(slower, modes, **RULE),
        "as slow as the later reference sessions": moved(1.1, seed=5),
        "the reference became faster": moved(0.9, seed=24),
        "faster": stored(now=0.8),
        "unchanged": stored(),
        "unchanged, the control moved": with_control(moved=1.06, seed=8),
        "the control moved as never before": with_control(moved=1.3, seed=8),
        "launches decide": stored(seed=6, launch=0.03, session=0.0),
        "one session": stored(sessions=1),
        "few sessions": stored(sessions=3, seed=12, session=0.008),
        "too much noise": stored(seed=13, session=0.06),
        "most launches far slower, the others faster": stored(now=[0.6, 0.6, 0.9, 0.9, 0.9]),
    }

    file_regression.check(lines(verdicts), extension=".txt", encoding="utf-8")


def test_the_sentences_of_two_sides(file_regression):
    def sides(new, old, **changes):
        new, old = ([[level * step for step in QUIET] for level in side] for side in (new, old))
        rule = {"tolerance": 0.05, "alpha": 0.0005, "prior": WIDE_DEFAULT, **changes}
        return judge_sides(new, old, **rule)

    rule = {"tolerance": 0.05, "alpha": 0.0005, "prior": WIDE_DEFAULT}
    old = [QUIET] * 3
    modes = [[*QUIET[:4], 1.4] if place in (1, 4, 6) else QUIET for place in range(12)]
    verdicts = {
        "slower": sides([1.6], [1.0]),
        "maybe slower": sides([1.25], [1.0]),
        "faster": sides([0.6], [1.0]),
        "unchanged, one session a side": sides([1.0], [1.0]),
        "unchanged, many sessions": sides([1.0] * 4, [1.0] * 4),
        "too much noise": sides([1.0, 1.2] * 2, [1.1, 0.9] * 2),
        "sessions differ": sides([1.0, 1.06], [1.06, 1.0]),
        "launches differ": sides([1.11], [1.0]),
        "more slow launches than ever": judge_sides([SLOW_MODE], old, **rule),
        "slower, with slow launches": judge_sides([[2 * step for step in SLOW_MODE]], old, **rule),
        "one mode slower": judge_sides([[1.4 * step for step in QUIET]], modes, **rule),
        "most launches far slower, the others faster": judge_sides(
            [[0.5 * step for step in SLOW_MODE]], old, **rule
        ),
    }

    file_regression.check(lines(verdicts), extension=".txt", encoding="utf-8")
