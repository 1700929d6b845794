"""Which terms of a step changed, by how much, and how sure that is.

A term of tonight is the median over the launches, and of the baseline the median over its
nights. Their difference errs by how launches differ, told by the median absolute deviation,
since a launch that was disturbed must not hide what all others show; and by how nights do. Of
a few nights that is hardly known for one term, but all terms of a case share its nights: how
much more nights differ than their launches explain is squeezed towards what the terms have in
common, as the gate does it with the cases of a machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec
from scipy import special

from ddp_perf.core.decomposition import LAG, TERMS
from ddp_perf.core.explanation import TermChange
from ddp_perf.core.verdict import NightPrior
from ddp_perf.stats.night_variance import squeeze_night_variance

Row = Mapping[str, float]  # one launch: seconds by term

# Terms that one cause moves together. No figure beside them has such a name.
GROUPS: dict[str, tuple[str, ...]] = {
    "compute": ("forward", "backward", "optimizer"),
    "unhidden": ("exposed", "interference"),
    "imbalance": ("imbalance",),
    "data": ("data",),
    "idle": ("idle",),
}
UNEXPLAINED = "unexplained"  # of the timed steps: what the probe of the same launch did not see
_ALL_GROUPS = (*GROUPS, UNEXPLAINED)
# A steadier figure that shows, where a side's rows hold it, that a group changed the same way.
_WITNESSES = {"imbalance": LAG}
_LEVEL = 0.05 / len(_ALL_GROUPS)  # of chance, for each group: in one of twenty cases any
_SD_PER_MAD = 1.4826
_VARIANCE_OF_MEDIAN = math.pi / 2  # ÷ that of the mean, of a normal law
_LEAST = 2  # launches, of which a spread can be told
_HALF = 0.5  # of the step's change
_SHARE = 0.1  # of the step's change: less is no cause of it


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """How the change of a step's time is made up. Seconds."""

    step: TermChange
    groups: tuple[TermChange, ...]  # that certainly changed, and matter; the largest change first
    # Where those leave most of the step's change open, the largest other one, if it is as large:
    # the step did change, so something must have.
    likely: TermChange | None
    terms: tuple[TermChange, ...]  # each single one, changed or not
    beside: dict[str, TermChange]  # other figures of the rows, changed or not


def attribute(
    now: Sequence[Row],
    nights: Sequence[Sequence[Row]],
    *,
    beside: Sequence[str] = (),
    known: Sequence[str] = (),
) -> Attribution | None:
    """``now``, and each of ``nights``: a row for each launch, with ``step`` beside the terms.

    ``beside``: names of further figures; those that a side lacks are left out. ``known``: groups
    that something else shows to have grown, as a count does: only by how much is uncertain.

    None with fewer than two rows now, or none before: nothing would tell how rows differ.
    """
    nights = [night for night in nights if night]
    if len(now) < _LEAST or not nights:
        return None
    rows, before = _with_groups(now), [_with_groups(night) for night in nights]
    names = dict.fromkeys(("step", *TERMS, *_ALL_GROUPS, *beside))
    figures = {
        name: figure for name in names if (figure := _figure(name, rows, before)) is not None
    }
    prior = _prior([figures[name] for name in _ALL_GROUPS])
    changes = {name: _change(name, figure, prior) for name, figure in figures.items()}
    step_s = changes["step"].change_s
    groups = [changes[name] for name in _ALL_GROUPS]
    certain = [
        group
        for group in groups
        if abs(group.change_s) >= _SHARE * abs(step_s)
        and (
            group.is_certain
            or (group.name in known and group.change_s > 0)
            or _witnessed(group, changes.get(_WITNESSES.get(group.name, "")))
        )
    ]
    return Attribution(
        step=changes["step"],
        groups=tuple(sorted(certain, key=lambda group: abs(group.change_s), reverse=True)),
        likely=_likely(step_s, groups, certain),
        terms=tuple(changes[term] for term in TERMS),
        beside={name: changes[name] for name in beside if name in changes},
    )


class _Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the rows, now and before."""

    after: float
    levels: tuple[float, ...]  # of the nights
    launch_variance: float
    launches: int  # now
    launches_before: int

    @property
    def launch_noise(self) -> float:
        """The variance that a night's level has from its launches."""
        return _VARIANCE_OF_MEDIAN * self.launch_variance * len(self.levels) / self.launches_before

    @property
    def night_df(self) -> int:
        """Degrees of freedom of `night_variance`."""
        return len(self.levels) - 1

    @property
    def night_variance(self) -> float:
        """Of the levels of nights, their launches' noise in it; two nights at least."""
        return statistics.variance(self.levels)

    @property
    def night_ratio(self) -> float:
        """How much more nights differ than their launches make them."""
        return self.night_variance / self.launch_noise


def _figure(name: str, now: Sequence[Row], nights: Sequence[Sequence[Row]]) -> _Figure | None:
    """None where a side lacks it."""
    tonight = [row[name] for row in now if name in row]
    before = [[row[name] for row in night if name in row] for night in nights]
    before = [night for night in before if night]
    if not tonight or not before:
        return None
    centred = [
        value - statistics.median(launches) for launches in (tonight, *before) for value in launches
    ]
    return _Figure(
        after=statistics.median(tonight),
        levels=tuple(statistics.median(night) for night in before),
        launch_variance=(_SD_PER_MAD * statistics.median(map(abs, centred))) ** 2,
        launches=len(tonight),
        launches_before=sum(map(len, before)),
    )


def _prior(figures: Sequence[_Figure]) -> NightPrior | None:
    """Of `night_ratio`, what the groups of terms have in common; None from a single night."""
    told = [figure for figure in figures if figure.night_df and figure.launch_noise]
    if not told:
        return None
    return squeeze_night_variance(
        [figure.night_ratio for figure in told], [figure.night_df for figure in told]
    )


def _change(name: str, figure: _Figure, prior: NightPrior | None) -> TermChange:
    noise, nights = figure.launch_noise, len(figure.levels)
    level, df = _level_variance(figure, prior)
    variance = (
        max(0.0, level - noise)
        + _VARIANCE_OF_MEDIAN * figure.launch_variance / figure.launches
        + level / nights
    )
    df = min(df, figure.launches + figure.launches_before - nights - 1)
    quantile = float(special.stdtrit(max(df, 1.0), 1 - _LEVEL / 2))
    return TermChange(
        name=name,
        before_s=statistics.median(figure.levels),
        after_s=figure.after,
        uncertainty_s=quantile * math.sqrt(variance),
    )


def _level_variance(figure: _Figure, prior: NightPrior | None) -> tuple[float, float]:
    """Of one night's level, and its degrees of freedom; of one night, from its launches alone."""
    noise, d = figure.launch_noise, figure.night_df
    if not noise:
        return (figure.night_variance if d else 0.0), d
    if prior is None:
        return noise, math.inf
    d0 = prior.degrees_of_freedom
    own = figure.night_ratio
    ratio = prior.sd**2 if math.isinf(d0) else (d0 * prior.sd**2 + d * own) / (d0 + d)
    return noise * max(1.0, ratio), d0 + d


def _likely(
    step_s: float, groups: Sequence[TermChange], certain: Sequence[TermChange]
) -> TermChange | None:
    most = _HALF * abs(step_s)
    left = step_s - sum(group.change_s for group in certain)
    largest = max(groups, key=lambda group: group.change_s * left)
    return largest if largest not in certain and min(left, largest.change_s) > most else None


def _witnessed(group: TermChange, witness: TermChange | None) -> bool:
    return witness is not None and witness.is_certain and witness.change_s * group.change_s > 0


def _with_groups(rows: Sequence[Row]) -> list[Row]:
    def extended(row: Row) -> Row:
        groups = {name: sum(row[term] for term in terms) for name, terms in GROUPS.items()}
        return {**row, **groups, UNEXPLAINED: row["step"] - sum(groups.values())}

    return [extended(row) for row in rows]
