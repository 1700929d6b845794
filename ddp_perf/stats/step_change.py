"""The change of a step by its terms, each with its uncertainty."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.core.decomposition import COUNTS, LAG, TERMS, Decomposition
from ddp_perf.core.verdict import Delta, SessionPrior
from ddp_perf.stats.interval import half_width, satterthwaite, upper_t
from ddp_perf.stats.robust import robust_df, sd_of_deviations
from ddp_perf.stats.rule.levels import (
    WIDE_DEFAULT,
    SessionSpread,
    moderate,
    sessions_alone,
    squeeze_session_variance,
)

# The change of a figure of the launches since earlier sessions, and its uncertainty.
#
# A figure of this session is the median over its launches; that of the baseline is the median over
# its sessions. The error of their difference has two parts. The first is how launches differ,
# estimated by the median absolute deviation, since a disturbed launch must not hide what all others
# show. The second is how sessions differ. A few sessions hardly determine it for one figure, but
# all figures of a case share its sessions: the ratio of the sessions' variance to what their
# launches explain is squeezed towards the value that the figures share, by the gate's own
# `moderate`.


Row = Mapping[str, float]  # one launch: seconds by term

_VARIANCE_OF_MEDIAN = math.pi / 2  # ÷ the variance of the mean, for a normal law


class FigureChange(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the rows, now and before."""

    after: float
    levels: tuple[float, ...]  # of the sessions
    launch_variance: float
    launches: int  # now
    launches_before: int

    @property
    def launch_noise(self) -> float:
        """The variance that a session's level has from its launches."""
        return _VARIANCE_OF_MEDIAN * self.launch_variance * len(self.levels) / self.launches_before

    @property
    def launch_df(self) -> float:
        """The degrees of freedom of `launch_variance`: each session's level takes one."""
        spent = 1 + len(self.levels)
        return robust_df(self.launches + self.launches_before - spent)

    @property
    def session_df(self) -> int:
        """The degrees of freedom of the between-session variance."""
        return len(self.levels) - 1

    @property
    def session_ratio(self) -> float:
        """The variance of the sessions ÷ what their launches explain; 0 for one session."""
        if not self.session_df or not self.launch_noise:
            return 0.0
        return statistics.variance(self.levels) / self.launch_noise


def figure_of(
    name: str, now: Sequence[Row], sessions: Sequence[Sequence[Row]]
) -> FigureChange | None:
    """Return the figure ``name`` of both sides, or None if one side has no launch with it."""
    current = [row[name] for row in now if name in row]
    before = [[row[name] for row in session if name in row] for session in sessions]
    before = [session for session in before if session]
    if not current or not before:
        return None
    return FigureChange(
        after=statistics.median(current),
        levels=tuple(statistics.median(session) for session in before),
        launch_variance=_launch_variance([current, *before]),
        launches=len(current),
        launches_before=sum(map(len, before)),
    )


def _launch_variance(sides: Sequence[Sequence[float]]) -> float:
    """Estimate the variance of launches from each side's deviations, without the smallest one.

    The median of a side takes one degree of freedom. If most launches are equal, as counts are, the
    mean square of the deviations is used instead.
    """
    deviations = list(itertools.chain.from_iterable(_deviations(side)[1:] for side in sides))
    if not deviations:
        return 0.0
    robust = sd_of_deviations(deviations) ** 2
    return robust or statistics.fmean(deviation**2 for deviation in deviations)


def _deviations(side: Sequence[float]) -> list[float]:
    """Return the absolute deviations from the median, the smallest first."""
    centre = statistics.median(side)
    return sorted(abs(value - centre) for value in side)


class SpreadOfSessions(msgspec.Struct, frozen=True, kw_only=True):
    """The excess of sessions over their launches' noise, shared by the figures of a case."""

    prior: SessionPrior | None  # in units of a level's noise; None: too few sessions or figures
    degrees_of_freedom: int  # of all figures together; no single figure has more
    in_alternation: bool = False  # measured in turn with the launches now: it has no excess

    def change(self, name: str, figure: FigureChange, level: float) -> Delta:
        """Return the change of a figure with its uncertainty.

        A change beyond the uncertainty has the two-sided significance ``level``.
        """
        variance, df = self._of_level(figure)
        beyond = max(0.0, variance - figure.launch_noise)
        sessions = beyond + variance / len(figure.levels) * (
            _VARIANCE_OF_MEDIAN if len(figure.levels) > 2 else 1.0
        )
        launches = _VARIANCE_OF_MEDIAN * figure.launch_variance / figure.launches
        together = satterthwaite((sessions, df), (launches, figure.launch_df))
        return Delta(
            name=name,
            unit="count" if name in COUNTS else "s",
            before=statistics.median(figure.levels),
            after=figure.after,
            uncertainty=upper_t(together, level / 2) * math.sqrt(sessions + launches),
        )

    def _of_level(self, figure: FigureChange) -> tuple[float, float]:
        """Return the variance of one session's level, and its degrees of freedom."""
        noise, own_df = figure.launch_noise, figure.session_df
        if self.in_alternation:
            return noise, figure.launch_df
        if not own_df:
            return _assumed(figure)
        if not noise:
            return statistics.variance(figure.levels), own_df
        spread = SessionSpread(variance=figure.session_ratio, degrees_of_freedom=own_df)
        if self.prior is not None:
            spread = moderate(spread, self.prior, launch_noise=1.0)
        df = min(spread.degrees_of_freedom, self.degrees_of_freedom or own_df)
        # The degrees of freedom of a product: the noise is itself estimated from few launches.
        return noise * max(1.0, spread.variance), 1 / (1 / df + 1 / figure.launch_df)


def _assumed(figure: FigureChange) -> tuple[float, float]:
    """Return the variance that the gate assumes for a single session, and its df."""
    assumed = (WIDE_DEFAULT.sd * figure.levels[0]) ** 2
    df = satterthwaite(
        (figure.launch_noise, figure.launch_df), (assumed, WIDE_DEFAULT.degrees_of_freedom)
    )
    return figure.launch_noise + assumed, df


def spread_of_sessions(
    figures: Sequence[FigureChange], *, in_alternation: bool = False
) -> SpreadOfSessions:
    """Estimate the spread of sessions that the figures of a case share."""
    if in_alternation:
        return SpreadOfSessions(prior=None, degrees_of_freedom=0, in_alternation=True)
    usable = [figure for figure in figures if figure.session_df and figure.launch_noise]
    if len(usable) < 2:
        return SpreadOfSessions(prior=None, degrees_of_freedom=0)
    dfs = [figure.session_df for figure in usable]
    prior = squeeze_session_variance([figure.session_ratio for figure in usable], dfs)
    # Launches give a level one unit of its own noise.
    return SpreadOfSessions(prior=sessions_alone(prior, 1.0), degrees_of_freedom=sum(dfs))


# The attribution of a step's change to its terms, with its uncertainty.


# Terms that one cause changes together. No figure beside them has such a name.
GROUPS: dict[str, tuple[str, ...]] = {
    "compute": ("forward", "backward", "optimizer"),
    "unhidden": ("exposed", "interference"),
    "imbalance": ("imbalance",),
    "data": ("data",),
    "idle": ("idle",),
}
UNEXPLAINED = "unexplained"  # part of the timed steps that the probe of the launch did not measure
_ALL_GROUPS = (*GROUPS, UNEXPLAINED)
# A steadier figure that confirms a group's change, if the rows of both sides have it.
_WITNESSES = {"imbalance": LAG}
_LEVEL = 0.05 / len(_ALL_GROUPS)  # significance level of each group; 5 % for all of them
_LEAST = 2  # launches: fewer have no spread
_HALF = 0.5
_SHARE = 0.1  # of the step's change: a smaller group is no cause of it


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a step's time, divided over groups of terms, in seconds."""

    step: Delta
    # Groups that matter and changed significantly, or by other evidence; the largest change first.
    groups: tuple[Delta, ...]
    # If those leave most of the step's change unexplained, the largest other group, if it is
    # large enough: the step did change, so some group must have changed.
    likely: Delta | None
    terms: tuple[Delta, ...]  # every single term, changed or not
    beside: dict[str, Delta]  # other figures of the rows, changed or not


def attribute(
    now: Sequence[Row],
    sessions: Sequence[Sequence[Row]],
    *,
    beside: Sequence[str] = (),
    known: Sequence[str] = (),
    in_alternation: bool = False,
) -> Attribution | None:
    """Divide the change of the step since earlier sessions over groups of terms.

    ``now``, and each of ``sessions``, has a row for each launch, with ``step`` beside the terms.
    ``beside`` names further figures; those that one side lacks are left out. ``known`` are groups
    that something else, such as a count, has shown to grow: only the size of their change is
    uncertain. ``in_alternation``: all launches are of one time, so that sessions differ by their
    launches alone.

    Returns None with fewer than two rows now, or none before: how rows differ is then unknown.
    """
    sessions = [session for session in sessions if session]
    if len(now) < _LEAST or not sessions:
        return None
    rows, before = _with_groups(now), [_with_groups(session) for session in sessions]
    names = dict.fromkeys(("step", *TERMS, *_ALL_GROUPS, *beside))
    figures = {
        name: figure for name in names if (figure := figure_of(name, rows, before)) is not None
    }
    shared = spread_of_sessions(
        [figures[name] for name in _ALL_GROUPS], in_alternation=in_alternation
    )
    changes = {name: shared.change(name, figure, _LEVEL) for name, figure in figures.items()}
    step_s = changes["step"].change
    groups = [changes[name] for name in _ALL_GROUPS]
    shown = [
        group
        for group in groups
        if abs(group.change) >= _SHARE * abs(step_s)
        and (
            group.is_certain
            or (group.name in known and group.change > 0)
            or _witnessed(group, changes)
        )
    ]
    return Attribution(
        step=changes["step"],
        groups=tuple(sorted(shown, key=lambda group: abs(group.change), reverse=True)),
        likely=_likely(step_s, groups, shown),
        terms=tuple(changes[term] for term in TERMS),
        beside={name: changes[name] for name in beside if name in changes},
    )


def _likely(step_s: float, groups: Sequence[Delta], shown: Sequence[Delta]) -> Delta | None:
    """Return the largest other group if the shown ones leave most of the step's change unexplained.

    It must account for more than half of the step's change.
    """
    left = step_s - sum(group.change for group in shown)
    others = [group for group in groups if group not in shown]
    largest = max(others, key=lambda group: group.change, default=None)
    enough = _HALF * step_s
    return largest if largest and left > enough and largest.change > enough > 0 else None


def _witnessed(group: Delta, changes: Mapping[str, Delta]) -> bool:
    """Return whether a steadier figure certainly changed the same way, by half as much at least."""
    witness = changes.get(_WITNESSES.get(group.name, ""))
    if witness is None or not witness.is_certain or witness.change * group.change <= 0:
        return False
    return abs(witness.change) >= _HALF * abs(group.change)


def _with_groups(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the sum of each group, and the part of the step outside them."""

    def extended(row: Row) -> Row:
        groups = {name: sum(row[term] for term in terms) for name, terms in GROUPS.items()}
        return {**row, **groups, UNEXPLAINED: row["step"] - sum(groups.values())}

    return [extended(row) for row in rows]


# The change of each term of a step between two sides that were launched in pairs.


_LEVEL_OF_TERM = 0.05 / len(TERMS)  # significance level of each term; 5 % for all of them
_LEAST_PAIRS = 3  # pairs: fewer have hardly a spread


def paired_terms(pairs: Sequence[tuple[Decomposition, Decomposition]]) -> tuple[Delta, ...]:
    """Return the mean change of each term from the first to the second of the pairs.

    What slows the machine for minutes cancels within a pair, so the uncertainty is that of the mean
    difference (Student's t). Returns nothing with fewer than three pairs.
    """
    if len(pairs) < _LEAST_PAIRS:
        return ()
    return tuple(
        _change(term, [(a.terms[term], b.terms[term]) for a, b in pairs]) for term in TERMS
    )


def _change(term: str, values: Sequence[tuple[float, float]]) -> Delta:
    differences = [after - before for before, after in values]
    return Delta(
        name=term,
        before=statistics.fmean(before for before, _ in values),
        after=statistics.fmean(after for _, after in values),
        uncertainty=half_width(statistics.stdev(differences), len(values), _LEVEL_OF_TERM / 2),
    )
