"""The history of cases, and the audits of a gate, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddp_perf.core.baseline import TYPICAL_STEP
from ddp_perf.core.metric import METRICS, metric_title
from ddp_perf.core.verdict import GateAudit
from ddp_perf.history.records import HistoryPoint, SessionInfo, TimeSeries
from ddp_perf.history.trend import CaseHistory, ChangeRange, TrendChange
from ddp_perf.render.tables import plain_table, rendered, wrapped
from ddp_perf.render.units import counted, percent_change, to_json
from ddp_perf.stats.share import share_found

# The history of cases as text and as JSON.


_UNITS = {metric.name: metric.unit for metric in METRICS} | {TYPICAL_STEP: "s"}


def overview_text(histories: Sequence[CaseHistory], width: int) -> str:
    """Return a table with a row for each case: its sessions, newest figure and newest change."""
    table = plain_table()
    table.add_column("case", overflow="fold")
    for heading in ("sessions", "newest", "since the\nfirst", "last\nchange"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("on")
    for history in histories:
        table.add_row(history.series.case.case_id, *_overview_row(history))
    lines = rendered(table, width)
    moved = [h for h in histories if h.trend and h.trend.distance and h.trend.distance.slower]
    lines += wrapped(
        [f"slower than the first: {_since_first(history)}" for history in moved], width
    )
    return "\n".join(lines)


def case_text(history: CaseHistory, width: int) -> str:
    """Return a table of every session with its verdict, and the changes below it."""
    series, trend = history.series, history.trend
    table = plain_table()
    for heading in ("session", "commit"):
        table.add_column(heading, no_wrap=True)
    table.add_column(unit_of(series.metric)[0], justify="right", no_wrap=True)
    table.add_column("level", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("")
    sound = series.sound()
    level_of = dict(zip(map(id, sound), trend.levels if trend else (), strict=True))
    starts = {id(sound[found.change.first]): found for found in history.ranges}
    for session in series.sessions:
        verdict = session.figure.verdict
        table.add_row(
            session.session.date[:16].replace("T", " "),
            (session.session.environment.commit or "unknown")[:12],
            _shown(series.metric, session.figure.value),
            _shown(series.metric, level_of.get(id(session))),
            verdict.outcome.value if verdict else "–",
            _remark(session, starts.get(id(session))),
        )
    lines = [_title(series), "", *rendered(table, width), ""]
    lines += wrapped(list(_findings(history)), width)
    return "\n".join(lines)


def ranges_text(history: CaseHistory, width: int) -> str:
    """Return each change with the sessions, commits and versions before and after it."""
    paragraphs = [_title(history.series)]
    if not history.ranges:
        paragraphs.append(f"no change in {_sessions(len(history.series.sound()))}")
    for found in history.ranges:
        before, after = found.before, found.after
        paragraphs += [
            describe_change(found.change, _dates(found)),
            f"  before: {_session(before)}",
            f"  after: {_session(after)}",
            f"  changed: {', '.join(found.versions) or 'none of the recorded versions'}",
            f"  {_advice(found)}",
        ]
    return "\n".join(wrapped(paragraphs, width))


def history_json(histories: Sequence[CaseHistory]) -> str:
    """Return the series, trend and change ranges of each case as JSON."""
    return to_json(histories)


def describe_change(change: TrendChange, dates: str) -> str:
    """Return one sentence with the size of the change, its interval and its dates."""
    low, high = change.interval
    sure = f"(99 % interval {percent_change(low)} to {percent_change(high)})"
    if change.is_drift:
        sessions = change.last - change.first + 1
        return (
            f"drift of {percent_change(change.ratio)} {sure} over {sessions} sessions,"
            f" {percent_change(change.per_session, 2)} a session, {dates}"
        )
    return f"step of {percent_change(change.ratio)} {sure}, {dates}"


def unit_of(metric: str) -> tuple[str, float]:
    """Return the unit in which a metric is shown, and the factor from the stored unit to it."""
    unit = _UNITS[metric]
    return ("ms", 1e3) if unit == "s" else (unit, 1.0)


def _overview_row(history: CaseHistory) -> list[str]:
    series, trend = history.series, history.trend
    distance = trend.distance if trend else None
    change = trend.changes[-1] if trend and trend.changes else None
    return [
        str(len(series.sessions)),
        _shown(series.metric, series.sessions[-1].figure.value, unit=True),
        percent_change(distance.ratio) if distance else "–",
        percent_change(change.ratio) if change else "–",
        series.sound()[change.first].session.date[:10] if change else "",
    ]


def _findings(history: CaseHistory) -> Iterator[str]:
    sessions, trend = history.series.sound(), history.trend
    if left_out := len(history.series.sessions) - len(sessions):
        yield f"left out because disturbed, INVALID or slowed on purpose: {_sessions(left_out)}"
    if trend is None:
        return
    yield f"sessions differ by {100 * trend.session_sd:.2g} % around the fitted level"
    for found in history.ranges:
        yield describe_change(found.change, _dates(found))
    if not history.ranges:
        yield "no step and no drift"
    if trend.distance is not None:
        yield _since_first(history)


def _sessions(count: int) -> str:
    return counted(count, "session")


def _since_first(history: CaseHistory) -> str:
    assert history.trend is not None
    distance = history.trend.distance
    assert distance is not None
    low, high = distance.interval
    state = "slower" if distance.slower else "faster" if distance.faster else "no different"
    return (
        f"{history.series.case.case_id}: the newest {distance.newest_sessions} sessions are"
        f" {percent_change(distance.ratio)} (99 % interval {percent_change(low)} to"
        f" {percent_change(high)}) against the first {distance.reference_sessions}: {state}"
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


def _shown(metric: str, value: float | None, *, unit: bool = False) -> str:
    if value is None:
        return "–"
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
    hidden = f"slowed by {_percent(audit.size)} % in secret" if audit.size else "not slowed"
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
            sizes = f"{_percent(low)} to {_percent(high)} %"
            what = f"{counted(len(newest), 'hidden slow-down')} of {sizes}"
            yield f"of the last {what}, {_share(newest, 'found')}; {_tolerances(newest)}"
    if newest := [one for one in audits if not one.size][-_NEWEST:]:
        what = counted(len(newest), "hidden nothing")
        yield f"of the last {what}, {_share(newest, 'called slower')}"


def _share(audits: Sequence[GateAudit], done: str) -> str:
    share = share_found(sum(audit.is_found for audit in audits), len(audits))
    low, high = (f"{100 * end:.0f}" for end in share.interval)
    verb = "was" if share.found == 1 else "were"
    return f"{share.found} {verb} {done} (95 % interval {low} to {high} %)"


def _tolerances(audits: Sequence[GateAudit]) -> str:
    """Return the tolerances of the cases: a slow-down below its own is not meant to be red."""
    low, high = (_percent(bound([one.tolerance for one in audits])) for bound in (min, max))
    tolerance = f"their tolerance is {low if low == high else f'{low} to {high}'} %"
    below = sum(audit.size < audit.tolerance for audit in audits)
    return f"{tolerance}, and {below} of them {'is' if below == 1 else 'are'} below it"


def _found(audit: GateAudit) -> str:
    if audit.ratio is None:
        return ""
    text = f", {100 * (audit.ratio - 1):+.1f} %"
    if audit.interval is None:
        return text
    low, high = (f"{100 * (end - 1):+.1f}" for end in audit.interval)
    return f"{text} ({low} to {high} %)"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}"
