"""How much a figure of the launches changed since earlier sessions, and what chance does to it.

A figure of this session is the median over the launches, and of the baseline the median over its
sessions. Their difference errs by how launches differ, told by the median absolute deviation,
since a launch that was disturbed must not hide what all others show; and by how sessions do. Of
a few sessions that is hardly known for one figure, but all figures of a case share its sessions:
how much more sessions differ than their launches explain is squeezed towards what the figures
have in common, by the gate's own `moderate`.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec
from scipy import special

from ddp_perf.core.decomposition import COUNTS
from ddp_perf.core.explanation import Delta
from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.robust import sd_of_deviations
from ddp_perf.stats.rule.session_variance import (
    WIDE_DEFAULT,
    SessionSpread,
    moderate,
    sessions_alone,
    squeeze_session_variance,
)
from ddp_perf.stats.rule.variance_components import satterthwaite

Row = Mapping[str, float]  # one launch: seconds by term

_EFFICIENCY_OF_MAD = 0.37  # of a standard deviation's degrees of freedom, of a normal law
_VARIANCE_OF_MEDIAN = math.pi / 2  # ÷ that of the mean, of a normal law


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
        """Degrees of freedom of `launch_variance`: a level is spent on each side."""
        spent = 1 + len(self.levels)
        return max(1.0, _EFFICIENCY_OF_MAD * (self.launches + self.launches_before - spent))

    @property
    def session_df(self) -> int:
        return len(self.levels) - 1

    @property
    def session_ratio(self) -> float:
        """How much more sessions differ than their launches make them; 0 of a single session."""
        if not self.session_df or not self.launch_noise:
            return 0.0
        return statistics.variance(self.levels) / self.launch_noise


def figure_of(
    name: str, now: Sequence[Row], sessions: Sequence[Sequence[Row]]
) -> FigureChange | None:
    """None where a side lacks it."""
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
    """From each side's deviations but the smallest: its median takes a degree of freedom.

    Where most launches are alike, as a count is, the few that are not tell it.
    """
    deviations = list(itertools.chain.from_iterable(_deviations(side)[1:] for side in sides))
    if not deviations:
        return 0.0
    robust = sd_of_deviations(deviations) ** 2
    return robust or statistics.fmean(deviation**2 for deviation in deviations)


def _deviations(side: Sequence[float]) -> list[float]:
    centre = statistics.median(side)
    return sorted(abs(value - centre) for value in side)


class SpreadOfSessions(msgspec.Struct, frozen=True, kw_only=True):
    """What figures have in common: by how much sessions differ beyond their launches."""

    prior: SessionPrior | None  # in units of a level's noise; None: too few sessions, or figures
    degrees_of_freedom: int  # of all that it rests on: no figure's is known better

    def change(self, name: str, figure: FigureChange, level: float) -> Delta:
        """``level``: of chance, both sides together, to be beyond the uncertainty."""
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
            uncertainty=float(special.stdtrit(together, 1 - level / 2))
            * math.sqrt(sessions + launches),
        )

    def _of_level(self, figure: FigureChange) -> tuple[float, float]:
        """The variance of one session's level, and its degrees of freedom."""
        noise, own_df = figure.launch_noise, figure.session_df
        if not own_df:
            return _assumed(figure)
        if not noise:
            return statistics.variance(figure.levels), own_df
        spread = SessionSpread(variance=figure.session_ratio, degrees_of_freedom=own_df)
        if self.prior is not None:
            spread = moderate(spread, self.prior, launch_noise=1.0)
        df = min(spread.degrees_of_freedom, self.degrees_of_freedom or own_df)
        # Of a product, for the ratio is one to a noise that is known by few launches itself.
        return noise * max(1.0, spread.variance), 1 / (1 / df + 1 / figure.launch_df)


def _assumed(figure: FigureChange) -> tuple[float, float]:
    """Of a single session, which tells nothing of how sessions differ: what the gate assumes."""
    assumed = (WIDE_DEFAULT.sd * figure.levels[0]) ** 2
    parts = (figure.launch_noise, figure.launch_df), (assumed, WIDE_DEFAULT.degrees_of_freedom)
    return figure.launch_noise + assumed, satterthwaite(*parts)


def spread_of_sessions(figures: Sequence[FigureChange]) -> SpreadOfSessions:
    told = [figure for figure in figures if figure.session_df and figure.launch_noise]
    if len(told) < 2:
        return SpreadOfSessions(prior=None, degrees_of_freedom=0)
    dfs = [figure.session_df for figure in told]
    prior = squeeze_session_variance([figure.session_ratio for figure in told], dfs)
    # Launches give a level one unit of its own noise.
    return SpreadOfSessions(prior=sessions_alone(prior, 1.0), degrees_of_freedom=sum(dfs))
