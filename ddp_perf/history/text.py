"""The history of cases, and the audits of a gate, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddp_perf.core.baseline import TYPICAL_STEP
from ddp_perf.core.metric import METRICS, metric_title
from ddp_perf.core.verdict import GateAudit
from ddp_perf.history.records import HistoryPoint, SessionInfo, TimeSeries
from ddp_perf.history.trend import CaseHistory, ChangeRange, TrendChange
from ddp_perf.render.model import CASE, Table, figures, words
from ddp_perf.render.terminal import Block
from ddp_perf.render.units import (
    ABSENT,
    change_range,
    counted,
    percent_change,
    percent_range,
    short_percent,
    suite_names,
)
from ddp_perf.stats.interval import share_found

# The history of cases as text.


_UNITS = {metric.name: metric.unit for metric in METRICS} | {TYPICAL_STEP: "s"}
_OF_CASES = (CASE, *figures("sessions", "newest", "since the first", "last change"), *words("on"))


def overview_parts(histories: Sequence[CaseHistory]) -> Iterator[Block]:
    """Yield a table with a row for each case: its sessions, newest figure and newest change."""
    cases = (history.series.case for history in histories)
    names = suite_names([(case.accelerator, case.case_id) for case in cases])
    rows = ((name, *_overview_row(one)) for name, one in zip(names, histories, strict=True))
    yield Table.of_texts(_OF_CASES, rows)
    for history in histories:
        if history.trend and history.trend.distance and history.trend.distance.slower:
            yield f"slower than the first: {_since_first(history)}"


def case_parts(history: CaseHistory) -> Iterator[Block]:
    """Yield a table of every session with its verdict, and the changes below it."""
    series, trend = history.series, history.trend
    unit, _ = unit_of(series.metric)
    columns = (*words("session", "commit"), *figures(unit, "level"), *words("verdict", ""))
    sound = series.sound()
    level_of = dict(zip(map(id, sound), trend.levels if trend else (), strict=True))
    starts = {id(sound[found.change.first]): found for found in history.ranges}
    rows = [
        (
            session.session.date[:16].replace("T", " "),
            (session.session.environment.commit or "unknown")[:12],
            figure_text(series.metric, session.figure.value),
            figure_text(series.metric, level_of.get(id(session))),
            session.figure.verdict.outcome.value if session.figure.verdict else ABSENT,
            _remark(session, starts.get(id(session))),
        )
        for session in series.sessions
    ]
    yield _title(series)
    yield Table.of_texts(columns, rows)
    yield from _findings(history)


def range_parts(history: CaseHistory) -> Iterator[Block]:
    """Yield each change with the sessions, commits and versions before and after it."""
    yield _title(history.series)
    if not history.ranges:
        yield f"no change in {counted(len(history.series.sound()), 'session')}"
    for found in history.ranges:
        yield describe_change(found.change, _dates(found))
        yield f"  before: {_session(found.before)}"
        yield f"  after: {_session(found.after)}"
        yield f"  changed: {', '.join(found.versions) or 'none of the recorded versions'}"
        yield f"  {_advice(found)}"


def describe_change(change: TrendChange, dates: str = "") -> str:
    """Return one sentence with the size of the change, its interval and its dates."""
    when = f", {dates}" if dates else ""
    sure = f"(99 % interval {change_range(change.interval)})"
    if change.is_drift:
        sessions = change.last - change.first + 1
        return (
            f"drift of {percent_change(change.ratio)} {sure} over {sessions} sessions,"
            f" {percent_change(change.per_session, 2)} a session{when}"
        )
    return f"step of {percent_change(change.ratio)} {sure}{when}"


def unit_of(metric: str) -> tuple[str, float]:
    """Return the unit in which a metric is shown, and the factor from the stored unit to it."""
    unit = _UNITS[metric]
    return ("ms", 1e3) if unit == "s" else (unit, 1.0)


def _overview_row(history: CaseHistory) -> tuple[str, ...]:
    series, trend = history.series, history.trend
    distance = trend.distance if trend else None
    change = trend.changes[-1] if trend and trend.changes else None
    return (
        str(len(series.sessions)),
        figure_text(series.metric, series.sessions[-1].figure.value, unit=True),
        percent_change(distance.ratio) if distance else ABSENT,
        percent_change(change.ratio) if change else ABSENT,
        series.sound()[change.first].session.date[:10] if change else "",
    )


def _findings(history: CaseHistory) -> Iterator[str]:
    sessions, trend = history.series.sound(), history.trend
    if left_out := len(history.series.sessions) - len(sessions):
        out = counted(left_out, "session")
        yield f"left out because disturbed, INVALID or slowed on purpose: {out}"
    if trend is None:
        return
    yield f"sessions differ by {100 * trend.session_sd:.2g} % around the fitted level"
    for found in history.ranges:
        yield describe_change(found.change, _dates(found))
    if not history.ranges:
        yield "no step and no drift"
    if trend.distance is not None:
        yield _since_first(history)


def _since_first(history: CaseHistory) -> str:
    assert history.trend is not None
    distance = history.trend.distance
    assert distance is not None
    state = "slower" if distance.slower else "faster" if distance.faster else "no different"
    return (
        f"{history.series.case.case_id}: the newest {distance.newest_sessions} sessions are"
        f" {percent_change(distance.ratio)} (99 % interval {change_range(distance.interval)})"
        f" against the first {distance.reference_sessions}: {state}"
    )


def _dates(found: ChangeRange) -> str:
    first, last = found.before.date[:10], found.after.date[:10]
    return f"between {first} and {last}"


def _session(info: SessionInfo) -> str:
    where = info.environment
    return f"{info.date[:16].replace('T', ' ')} on {where.host}, commit {where.commit or 'unknown'}"


def _advice(found: ChangeRange) -> str:
    before, after = found.before.environment.commit, found.after.environment.commit
    if before is None or after is None:
        return "no commit was recorded: run the suite from a git checkout"
    if found.is_same_commit:
        return f"both sessions have commit {before}: the code did not change"
    return f"git bisect start {after} {before}"


def _title(series: TimeSeries) -> str:
    return f"{series.case.case_id} on {series.case.accelerator}: {metric_title(series.metric)}"


def _remark(session: HistoryPoint, found: ChangeRange | None) -> str:
    if session.session.injections:
        return f"slowed on purpose: {', '.join(session.session.injections)}"
    if found is None:
        return ""
    return f"{'drift' if found.change.is_drift else 'step'} {percent_change(found.change.ratio)}"


def figure_text(metric: str, value: float | None, *, unit: bool = False) -> str:
    """Return a figure in the unit in which people read it, with the unit if it is wanted."""
    if value is None:
        return ABSENT
    name, scale = unit_of(metric)
    text = f"{scale * value:.2f}" if name == "ms" else f"{scale * value:,.4g}"
    return f"{text} {name}" if unit else text


# The audits of a gate in words: how many of the hidden slow-downs it found, by their size.


_BINS = ((0.01, 0.03), (0.03, 0.05), (0.05, 0.10))  # each without its end, but the last
_NEWEST = 30  # audits of one size: older ones were of another code and machine


AUDIT_MEANING = (
    "An audit ends a session: launches of one case that were slowed by a size that nobody knows, or"
    " not at all, and are judged as the session is. They are no session, and change no verdict."
)


def audit_lines(audits: Sequence[GateAudit]) -> list[str]:
    """Return a line for each accelerator and size that has audits. ``audits`` are oldest first."""
    keys = sorted({audit.accelerator for audit in audits})
    return [
        f"audits of the gate on {key}: {line}"
        for key in keys
        for line in _lines([audit for audit in audits if audit.accelerator == key])
    ]


def audit_sentence(audit: GateAudit) -> str:
    """Return what one audit hid, and what the gate called it."""
    hidden = f"slowed by {short_percent(audit.size)} in secret" if audit.size else "not slowed"
    by = {"sessions": "stored sessions", "pairs": "pairs of launches"}[audit.stage]
    return (
        f"audit of the gate: {audit.case_id} was {hidden}: {audit.outcome.value}"
        f"{_found(audit)}, by {by}, in {audit.seconds:.0f} s (seed {audit.seed})"
    )


def _lines(audits: Sequence[GateAudit]) -> Iterator[str]:
    for place, (low, high) in enumerate(_BINS):
        last = place == len(_BINS) - 1
        within = [one for one in audits if low <= one.size < high or (last and one.size == high)]
        if newest := within[-_NEWEST:]:
            what = f"{counted(len(newest), 'hidden slow-down')} of {percent_range(low, high)}"
            yield f"of the last {what}, {_share(newest, 'found')}; {_tolerances(newest)}"
    if newest := [one for one in audits if not one.size][-_NEWEST:]:
        what = counted(len(newest), "hidden nothing")
        yield f"of the last {what}, {_share(newest, 'called slower')}"


def _share(audits: Sequence[GateAudit], done: str) -> str:
    share = share_found(sum(audit.is_found for audit in audits), len(audits))
    verb = "was" if share.found == 1 else "were"
    return f"{share.found} {verb} {done} (95 % interval {percent_range(*share.interval)})"


def _tolerances(audits: Sequence[GateAudit]) -> str:
    """Return the tolerances of the cases: a slow-down below its own is not meant to be red."""
    ends = [bound([one.tolerance for one in audits]) for bound in (min, max)]
    tolerance = f"their tolerance is {' to '.join(dict.fromkeys(map(short_percent, ends)))}"
    below = sum(audit.size < audit.tolerance for audit in audits)
    return f"{tolerance}, and {below} of them {'is' if below == 1 else 'are'} below it"


def _found(audit: GateAudit) -> str:
    if audit.ratio is None:
        return ""
    text = f", {percent_change(audit.ratio)}"
    return text if audit.interval is None else f"{text} ({change_range(audit.interval)})"
