"""Is it slower? The rule, on plain numbers.

The sample is the launch: steps of one launch share its placement, its memory layout and its
caches, and launches of one session share the session, so steps are no independent evidence of what
the next launch brings, nor launches of the next session (Kalibera & Jones, "Rigorous benchmarking
in reasonable time", ISMM 2013, on levels of repetition). With y the level of a session (mean log
of its launch medians) and k launches::

    D      = y_current − ȳ_reference
    Var(D) = σ²_session + σ²_launch/k + Var(ȳ_reference)

is referred to Student's t on the degrees of freedom of the sessions, which the machine's other
cases may enlarge (`session_variance`). Launches in a slow mode are judged by their share
(`levels`, `slow_mode`); what the control explains is taken off (`control`).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import msgspec

from ddp_perf.core.verdict import UNDECIDED, Outcome, SessionPrior, Verdict
from ddp_perf.stats.rule.alpha_spending import look_levels
from ddp_perf.stats.rule.comparison import PASS_LEVEL, SignificanceLevels
from ddp_perf.stats.rule.inputs import (
    Launches,
    check_arguments,
    first_invalid_launch,
    first_problem_of_sessions,
    levels_of,
)
from ddp_perf.stats.rule.reason import reason_of
from ddp_perf.stats.rule.statistic import JudgedDifference, weigh
from ddp_perf.stats.rule.variance_components import launches_to_decide

SUSPECT_LEVEL = 0.01  # between it and alpha is SUSPECT, and `confirm` asks a second session
_AT_LEAST_SUSPECT = (Outcome.SUSPECT, Outcome.REGRESSION)
_UNREMARKABLE = 0.05  # a share of slow launches rarer than this never passes


def judge_launches(
    current: Launches,
    baseline: Sequence[Launches],
    *,
    tolerance: float,
    alpha: float,
    control: Launches | None = None,
    baseline_control: Sequence[Launches] | None = None,
    reference: int | None = None,
    prior: SessionPrior | None = None,
    looks: Sequence[int] = (),
) -> Verdict:
    """Judge one metric of one case; lower is better.

    ``current`` holds launches × values and ``baseline`` sessions × launches × values, oldest
    first; a launch may hold one value, its median. ``control`` and ``baseline_control`` hold
    the frozen reference operation's likewise; a session without any leaves the control unused.
    The oldest ``reference`` sessions (default: all) set the level; all inform the variance.
    ``prior`` is what the machine's other cases say of its sessions. ``looks``: how many launches
    there are at each planned look, rising, where a case that is undecided takes more of them;
    all looks together then keep ``alpha``, and the level of PASS.

    - REGRESSION: slower at level ``alpha``, one-sided, and by ``tolerance`` at least; where a
      slow mode is known, level and share of slow launches get half of ``alpha`` each.
    - SUSPECT: the same at level 0.01 only.
    - IMPROVEMENT: the mirror image of a regression of the level.
    - PASS: the one-sided 99.5 % upper bound of the ratio is below ``1 + 2 tolerance``.
    - INCONCLUSIVE: else. NO_BASELINE: no session. INVALID: a value that no measurement gives,
      or a machine that moved further than the baseline sessions can account for.

    Raises ValueError where an option is out of its range.
    """
    check_arguments(tolerance, alpha, reference, prior, looks)
    if len(baseline) == 0:
        return Verdict(outcome=Outcome.NO_BASELINE, reason="the baseline holds no session")
    problem = first_invalid_launch(current, "this session") or first_problem_of_sessions(
        baseline, "baseline session"
    )
    if problem:
        return Verdict(outcome=Outcome.INVALID, reason=problem)
    controls = _paired_controls(control, baseline_control, len(baseline))
    problem = first_problem_of_sessions(controls, "the control in session")
    if problem:
        return Verdict(outcome=Outcome.INVALID, reason=problem)
    evidence = weigh(
        levels_of([*baseline, current], tolerance),
        levels_of(controls, tolerance).fast if controls else None,
        tolerance=tolerance,
        reference=min(reference or len(baseline), len(baseline)),
        prior=prior,
    )
    return _conclude(evidence, _risks(evidence, alpha, looks, len(current)))


def _paired_controls(
    control: Launches | None, baseline_control: Sequence[Launches] | None, sessions: int
) -> list[Launches]:
    """The control of every session, the current one last; empty where any session has none."""
    if control is None or baseline_control is None:
        return []
    if len(baseline_control) != sessions:
        raise ValueError(
            f"baseline_control holds {len(baseline_control)} sessions, the baseline {sessions}"
        )
    controls = [*baseline_control, control]
    complete = all(len(session) and all(map(len, session)) for session in controls)
    return controls if complete else []


def _risks(
    evidence: JudgedDifference, alpha: float, looks: Sequence[int], launches: int
) -> SignificanceLevels:
    """Those of this look: the first one planned with as many launches as there are."""
    level = alpha / 2 if evidence.share.any_slow else alpha
    if len(looks) < 2:
        return SignificanceLevels(regression=level)
    information = evidence.errors.information(looks)
    look = min(bisect.bisect_left(looks, launches), len(looks) - 1)
    return SignificanceLevels(
        regression=look_levels(level, information)[look],
        passing=look_levels(PASS_LEVEL, information)[look],
    )


def _conclude(evidence: JudgedDifference, risks: SignificanceLevels) -> Verdict:
    comparison = evidence.comparison
    outcome, by_share = _outcome(evidence, risks)
    more = None
    if outcome in UNDECIDED:
        more = launches_to_decide(evidence.errors, comparison, risks)
    return Verdict(
        outcome=outcome,
        reason=reason_of(outcome, evidence, risks, more_launches=more, by_share=by_share),
        ratio=math.exp(evidence.overall) if by_share else comparison.ratio,
        interval=None if by_share else comparison.interval,
        minimum_detectable=comparison.minimum_detectable(risks.regression),
        more_launches=more,
    )


def _outcome(evidence: JudgedDifference, risks: SignificanceLevels) -> tuple[Outcome, bool]:
    """The outcome, and whether the share of slow launches decided it, not the level."""
    comparison, level = evidence.comparison, risks.regression
    for outcome, at in (
        (Outcome.REGRESSION, level),
        (Outcome.SUSPECT, max(SUSPECT_LEVEL, level)),
    ):
        if comparison.slower(at) and evidence.chance_all_slow < at:
            return outcome, False
        if evidence.share_grown(at):
            return outcome, True
    if evidence.share.p_value > _UNREMARKABLE:
        if comparison.faster(level):
            return Outcome.IMPROVEMENT, False
        if comparison.passes(risks.passing):
            return Outcome.PASS, False
    if evidence.control is not None and evidence.control.beyond:
        return Outcome.INVALID, False
    return Outcome.INCONCLUSIVE, False


def confirm(current: Verdict, previous: Outcome | None) -> Verdict:
    """The second of two consecutive sessions that are SUSPECT, or worse, is a REGRESSION.

    ``previous``: what the session before this one concluded of the same metric, if anything.
    The two sessions are nearly independent, the baseline is the same: a false alarm at 1 %
    repeats with probability 0.06, so that confirmation adds less than 0.1 % of false alarms.
    """
    if current.outcome is not Outcome.SUSPECT or previous not in _AT_LEAST_SUSPECT:
        return current
    reason = f"suspect for the second session in a row: {current.reason}"
    return msgspec.structs.replace(current, outcome=Outcome.REGRESSION, reason=reason)
