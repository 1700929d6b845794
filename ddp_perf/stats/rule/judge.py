"""Judge whether a session is slower than its baseline: the rule, on plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np

from ddp_perf.core.baseline import REFERENCE_SESSIONS
from ddp_perf.core.verdict import Outcome, SessionPrior, Verdict
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import (
    PASS_LEVEL,
    SUSPECT_LEVEL,
    Figures,
    JudgeOptions,
    Launches,
    SignificanceLevels,
    first_empty_launch,
    first_invalid_figure,
    launch_levels,
    launch_medians,
    level_of_one_session,
)
from ddp_perf.stats.rule.levels import (
    groups_of,
    levels_of,
    session_spread,
    sessions_alone,
    squeeze_session_variance,
    stored_levels,
    without_slow_sessions,
)
from ddp_perf.stats.rule.reason import Decision, Grounds, reason_of
from ddp_perf.stats.rule.statistic import (
    Judged,
    JudgedDifference,
    judged_difference,
    launches_to_decide,
    sessions_to_decide,
)
from ddp_perf.stats.sequential import planned_level

# Judge whether a session is slower than the baseline: the rule, on plain numbers.
#
# The sample is the launch. The steps of one launch share its placement, its memory layout and its
# caches, and the launches of one session share the session. So steps are no independent evidence
# of what the next launch brings, nor are launches of the next session (Kalibera & Jones, "Rigorous
# benchmarking in reasonable time", ISMM 2013, on levels of repetition). With y the level of a
# session (the mean log of its launches' levels) and k launches::
#
#     D      = y_current − ȳ_reference
#     Var(D) = σ²_session + σ²_launch/k + Var(ȳ_reference)
#
# D ÷ √Var(D) is referred to Student's t on the degrees of freedom of the sessions, which the
# machine's other cases may enlarge (`session_variance`). ȳ is the median of the reference. Launches
# in a slow mode are judged by their share (`modes`). What the control explains is subtracted
# (`control`). A quarter of the false-alarm rate is kept for sessions that are suspect in a row
# (`suspicion`).


_NO_BASELINE = Verdict(outcome=Outcome.NO_BASELINE, reason="the baseline contains no session")
_Values = TypeVar("_Values")  # the launches of one session, or their figures


def judge_launches(
    current: Launches,
    baseline: Sequence[Launches],
    options: JudgeOptions,
    *,
    control: Launches | None = None,
    baseline_control: Sequence[Launches] | None = None,
) -> Verdict:
    """Judge one metric of one case by the values of every launch; lower is better.

    ``current`` has launches × values, and ``baseline`` has sessions × launches × values, the
    oldest session first; ``control`` and ``baseline_control`` likewise. The figure of a launch
    is the level of its values, and that of its control the median. `judge_figures` describes the
    outcomes.

    Raises ValueError if an option is out of its range.
    """
    options.check(len(baseline))
    if len(baseline) == 0:
        return _NO_BASELINE
    if problem := first_empty_launch(_named_sessions(current, baseline)):
        return Verdict(outcome=Outcome.INVALID, reason=problem)
    return judge_figures(
        launch_levels(current),
        [launch_levels(session) for session in baseline],
        options,
        control=None if control is None else _control_figures(control),
        baseline_control=None
        if baseline_control is None
        else [_control_figures(session) for session in baseline_control],
    )


def judge_figures(
    current: Figures,
    baseline: Sequence[Figures],
    options: JudgeOptions,
    *,
    control: Figures | None = None,
    baseline_control: Sequence[Figures] | None = None,
) -> Verdict:
    """Judge one metric of one case by one figure for each launch; lower is better.

    ``current`` has the figure of every launch, and ``baseline`` has sessions × launches, the
    oldest session first. ``control`` and ``baseline_control`` have the figures of the frozen
    reference operation likewise; if a session has none, the control is not used.

    - REGRESSION: slower at level ¾ ``alpha``, one-sided, and by at least ``tolerance``, also
      without what the control explains; or the level became slower within the reference, and this
      session does not rule that out.
    - SUSPECT: slower at level 0.01; or more slow launches than in any session, at the cost of the
      tolerance. `sessions_to_confirm` such sessions in a row are a REGRESSION.
    - IMPROVEMENT: the mirror image of a regression.
    - PASS: the one-sided 99.5 % upper bound of the ratio is below ``1 + 2 tolerance``.
    - UNDECIDED: none of these, or most launches are slow, as in no session before.
    - NO_BASELINE: there is no session. INVALID: there is a value that no measurement gives, or the
      machine moved by more than the baseline sessions account for.

    Raises ValueError if an option is out of its range.
    """
    options.check(len(baseline))
    if len(baseline) == 0:
        return _NO_BASELINE
    controls = _paired_controls(control, baseline_control, len(baseline))
    problem = first_invalid_figure(
        [
            *_named_sessions(current, baseline),
            *((f"the control in session {i}", one) for i, one in enumerate(controls, start=1)),
        ]
    )
    if problem:
        return Verdict(outcome=Outcome.INVALID, reason=problem)
    level = level_of_one_session(options.alpha)
    judged = judged_difference(
        levels_of([*baseline, current], options.tolerance),
        levels_of(controls, options.tolerance).fast if controls else None,
        options,
        alpha=level,
    )
    levels = _significance_levels(judged, level, options.looks, len(current))
    return _conclude(judged, levels, alpha=options.alpha)


def _named_sessions(current: _Values, baseline: Sequence[_Values]) -> list[tuple[str, _Values]]:
    before = [(f"baseline session {i}", session) for i, session in enumerate(baseline, start=1)]
    return [("this session", current), *before]


def _control_figures(session: Launches) -> list[float]:
    """Return the figures of a session's control; none if one of its launches has no value."""
    return launch_medians(session) if all(map(len, session)) else []


def _paired_controls(
    control: Figures | None, baseline_control: Sequence[Figures] | None, sessions: int
) -> list[Figures]:
    """Return the control of every session, the current one last; none if one session has none."""
    if control is None or baseline_control is None:
        return []
    if len(baseline_control) != sessions:
        raise ValueError(
            f"baseline_control must have the {sessions} sessions of the baseline,"
            f" not {len(baseline_control)}"
        )
    controls = [*baseline_control, control]
    complete = all(map(len, controls))
    return controls if complete else []


def _significance_levels(
    judged: JudgedDifference, alpha: float, looks: Sequence[int], launches: int
) -> SignificanceLevels:
    """Return the levels of this look: the first one planned with at least ``launches``."""
    information = judged.errors.information(looks) if looks else ()
    regression, passing = (
        planned_level(error, looks, launches, information) for error in (alpha, PASS_LEVEL)
    )
    return SignificanceLevels(regression=regression, passing=passing)


def plain_verdict(judged: Judged, levels: SignificanceLevels) -> tuple[Verdict, Grounds]:
    """Return the outcome and its figures, still without a reason, and what decided it."""
    comparison = judged.comparison
    outcome, by = _outcome(judged, levels)
    # The fast launches bound the step of a session only if it is as fast as they are.
    fast = by != "share" and not judged.share.prevails
    verdict = Verdict(
        outcome=outcome,
        reason="",
        ratio=math.exp(judged.overall) if by == "share" else comparison.ratio,
        interval=None if by == "share" else comparison.interval,
        upper=comparison.upper(levels.passing) if fast else None,
        minimum_detectable=comparison.minimum_detectable(levels.regression),
    )
    return verdict, by


def _conclude(judged: JudgedDifference, levels: SignificanceLevels, *, alpha: float) -> Verdict:
    comparison = judged.comparison
    verdict, by = plain_verdict(judged, levels)
    launches = likely_launches = sessions = chance = None
    if verdict.outcome.is_open:
        launches, likely_launches = launches_to_decide(judged.errors, comparison, levels)
    if verdict.outcome is Outcome.UNDECIDED and launches is None:
        sessions = sessions_to_decide(judged.errors, comparison, levels)
    if verdict.outcome is Outcome.SUSPECT:
        likely_launches = None  # it is stated of an UNDECIDED verdict alone
        by_level = max(comparison.chance, judged.chance_all_slow)
        chance = judged.share.chance if by == "share" else by_level
    decision = Decision(
        outcome=verdict.outcome,
        by=by,
        upper=verdict.upper,
        more_launches=launches,
        likely_launches=likely_launches,
        more_sessions=sessions,
        chance=chance,
        alpha=alpha,
    )
    return msgspec.structs.replace(
        verdict,
        reason=reason_of(decision, judged, levels),
        more_launches=launches,
        likely_launches=likely_launches,
        more_sessions=sessions,
        assumed_sd=judged.errors.spread.assumed_sd,
        chance=chance,
        off_level=judged.off_level,
    )


def _outcome(judged: Judged, levels: SignificanceLevels) -> tuple[Outcome, Grounds]:
    """Return the outcome, and what decided it."""
    comparison, level, move = judged.comparison, levels.regression, judged.move
    # A control that moved alone must not change the verdict on a case that is as it was.
    tolerance = math.log1p(comparison.tolerance)
    slower_itself, faster_itself = judged.raw >= tolerance, -judged.raw >= tolerance
    if slower_itself and comparison.slower(level) and judged.chance_all_slow < level:
        return Outcome.REGRESSION, "level"
    if move is not None and 0 < move.change <= comparison.difference + comparison.margin:
        return Outcome.REGRESSION, "move"
    if slower_itself and comparison.slower(max(SUSPECT_LEVEL, level)):
        return Outcome.SUSPECT, "level"
    if judged.share.has_grown(judged.overall, comparison.tolerance):
        return Outcome.SUSPECT, "share"
    if judged.share.prevails:  # the others prove no good news
        return Outcome.UNDECIDED, "level"
    if faster_itself and comparison.faster(level):
        return Outcome.IMPROVEMENT, "level"
    if (judged.by_launches or comparison).passes(levels.passing):
        return Outcome.PASS, "level"
    if judged.control is not None and judged.control.beyond:
        return Outcome.INVALID, "level"
    return Outcome.UNDECIDED, "level"


# The prior of a case: the spread of the machine's sessions, estimated from its other cases.


_MOVE_LEVEL = 0.001  # of a move within the reference


class CaseSessions(msgspec.Struct, frozen=True, kw_only=True):
    """A case's stored sessions (sessions × launches) and those of its control, if any."""

    sessions: Sequence[Figures]
    days: Sequence[str]  # of each session; sessions of one day share the machine's state
    control: Sequence[Figures] | None = None
    session_levels: Sequence[int] = ()
    tolerance: float


class CaseSpread(msgspec.Struct, frozen=True, kw_only=True):
    """The spread of one case's sessions."""

    variance: float
    degrees_of_freedom: float
    launch_noise: float  # the launches' part of the variance
    residuals: dict[str, float]  # by day


class MachineSpread:
    """The spread of every case of a machine, and how alike the cases move from day to day."""

    def __init__(self, cases: Sequence[CaseSessions]) -> None:
        self._spreads = [_case_spread(case) if len(case.sessions) > 1 else None for case in cases]
        self._shared = shared_variance([s.residuals for s in self._spreads if s is not None])

    def prior(self, case: int | None) -> SessionPrior | None:
        """Return the prior of the case at this index, from the other cases; None without any.

        ``case`` None is a case that is not among them.

        A plug-in prior counts the degrees of freedom of all cases, as if each had sessions of its
        own. They share the sessions: the variance of n cases whose residuals have the correlation
        ρ is known no better than from ``Σ df ÷ (1 + (n − 1) ρ²)`` degrees of freedom. What the
        case itself brings is subtracted from them.
        """
        own = None if case is None else self._spreads[case]
        others = [
            spread
            for i, spread in enumerate(self._spreads)
            if spread is not None and spread.degrees_of_freedom > 0 and i != case
        ]
        if not others:
            return None
        prior = squeeze_session_variance(
            [s.variance for s in others], [s.degrees_of_freedom for s in others]
        )
        prior = sessions_alone(prior, float(np.mean([s.launch_noise for s in others])))
        known = [s.degrees_of_freedom for s in ([*others, own] if own else others)]
        carried = sum(known) / (1 + (len(known) - 1) * self._shared)
        own_df = own.degrees_of_freedom if own else 0.0
        at_most = max(0.0, carried - own_df)
        return msgspec.structs.replace(
            prior, degrees_of_freedom=min(prior.degrees_of_freedom, at_most)
        )


def shared_variance(residuals: Sequence[dict[str, float]]) -> float:
    """Return ρ², the share of the variance that two cases have in common, between 0 and 1.

    With C the correlations of the residuals over ν days, ``(ν mean(C²) − 1) ÷ (ν − 1)`` is
    unbiased: unrelated cases have C² = 1 ÷ ν on average. With one day nothing is known, and it
    is 1.
    """
    if len(residuals) < 2:
        return 1.0
    days = sorted({day for case in residuals for day in case})
    rows = np.array([[case.get(day, 0.0) for day in days] for case in residuals])
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows[lengths > 0] / lengths[lengths > 0, None]
    freedom = len(days) - 1
    if len(rows) < 2 or freedom < 2:
        return 1.0
    squares = np.square(rows @ rows.T)
    pairs = len(rows) * (len(rows) - 1)
    mean = (float(squares.sum()) - len(rows)) / pairs
    return min(1.0, max(0.0, (freedom * mean - 1) / (freedom - 1)))


def _case_spread(case: CaseSessions) -> CaseSpread:
    levels = levels_of(case.sessions, case.tolerance)
    kept = without_slow_sessions(levels, len(case.sessions))
    control = levels_of(case.control, case.tolerance).fast if case.control is not None else None
    groups = groups_of(case.session_levels, len(case.sessions))
    stored, _ = stored_levels(levels, control, groups, None, kept=kept)
    move = stored.find_move(
        REFERENCE_SESSIONS, smallest=math.log1p(case.tolerance), level=_MOVE_LEVEL
    )
    if move is not None:
        stored = stored.split(move.after)
    residual, df = stored.residuals()
    spread = session_spread(residual, df)
    return CaseSpread(
        variance=spread.variance,
        degrees_of_freedom=spread.degrees_of_freedom,
        launch_noise=stored.launch_noise,
        residuals=_by_day(case.days, kept.tolist(), residual),
    )


def _by_day(days: Sequence[str], kept: Sequence[bool], residual: Floats) -> dict[str, float]:
    used = [day for day, is_kept in zip(days, kept, strict=True) if is_kept]
    return dict(zip(used, residual.tolist(), strict=True))
