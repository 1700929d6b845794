"""The analysis of a case's sessions: its trend, and the commits and versions of each change."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ddp_perf.history.records import SessionInfo, TimeSeries
from ddp_perf.history.trend import Trend, TrendChange, find_trend
from ddp_perf.session.gate.comparability import changes


class ChangeRange(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and the sessions before and after it."""

    change: TrendChange
    before: SessionInfo  # the last session that is certainly before it
    after: SessionInfo  # the first session that is certainly after it
    versions: tuple[str, ...]  # differences of machine and software between the two

    @property
    def is_same_commit(self) -> bool:
        """True if both sessions have the same commit, and it is recorded."""
        commits = (self.before.environment.commit, self.after.environment.commit)
        return None not in commits and commits[0] == commits[1]


class CaseHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A series, and the trend of its usable sessions."""

    series: TimeSeries
    trend: Trend | None  # None: there is no usable session
    ranges: tuple[ChangeRange, ...] = ()


def case_history(series: TimeSeries) -> CaseHistory:
    """Find the trend of a series, and the range of each change.

    Disturbed sessions, and those slowed on purpose, are left out.
    """
    sessions = series.sound()
    if not sessions:
        return CaseHistory(series=series, trend=None)
    trend = find_trend(
        [session.figure.value for session in sessions if session.figure.value is not None]
    )
    ranges = []
    for change in trend.changes:
        before, after = sessions[change.earliest - 1].session, sessions[change.latest].session
        ranges.append(
            ChangeRange(
                change=change,
                before=before,
                after=after,
                versions=tuple(changes(before.environment, after.environment)),
            )
        )
    return CaseHistory(series=series, trend=trend, ranges=tuple(ranges))


def newest_work(found: Iterable[TimeSeries]) -> list[TimeSeries]:
    """Return the series of the work that was measured last, for each accelerator and case.

    Series without a session are left out.
    """
    newest: dict[tuple[str, str], TimeSeries] = {}
    for series in found:
        key = series.case.accelerator, series.case.case_id
        if series.sessions and (key not in newest or _last(series) > _last(newest[key])):
            newest[key] = series
    return list(newest.values())


def _last(series: TimeSeries) -> str:
    return series.sessions[-1].session.date
