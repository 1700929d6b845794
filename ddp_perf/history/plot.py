"""The plot of a case's history: its sessions by verdict, the levels and the drifts."""

from __future__ import annotations

import datetime
import io
from pathlib import Path

import matplotlib.dates
from matplotlib.figure import Figure

from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Outcome
from ddp_perf.history.records import SessionInfo
from ddp_perf.history.text import describe_change, unit_of
from ddp_perf.history.trend import CaseHistory
from ddp_perf.system.files import replace_file

# A verdict has a shape and a colour: colour alone is hard to see for some readers.
_MARKERS = {
    Outcome.REGRESSION: ("v", "tab:red"),
    Outcome.SUSPECT: ("D", "tab:orange"),
    Outcome.INVALID: ("x", "0.6"),
}
_PLAIN = ("o", "tab:blue")


def write_history_plot(path: Path, history: CaseHistory) -> None:
    """Write the plot as a PNG, completely or not at all. Raises OSError."""
    data = io.BytesIO()
    history_figure(history).savefig(data, format="png", dpi=120)
    replace_file(path, data.getvalue())


def history_figure(history: CaseHistory) -> Figure:
    """Draw the figures over the date, in the unit of the metric."""
    series, sound = history.series, history.series.sound()
    unit, scale = unit_of(series.metric)
    figure = Figure(figsize=(9.0, 5.0), layout="constrained")
    axes = figure.subplots()
    groups: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for session in series.sessions:
        verdict, value = session.figure.verdict, session.figure.value
        if value is None or session.session.injections:
            continue
        outcome = verdict.outcome if verdict else None
        if not session.figure.is_sound:
            outcome = Outcome.INVALID
        marker, colour = _MARKERS.get(outcome, _PLAIN) if outcome else _PLAIN
        label = outcome.value if outcome in _MARKERS and outcome else "session"
        groups.setdefault((label, marker, colour), []).append(
            (_day(session.session), scale * value)
        )
    for (label, marker, colour), points in groups.items():
        days = [day for day, _ in points]
        values = [value for _, value in points]
        axes.scatter(days, values, marker=marker, color=colour, s=22, label=label)
    if history.trend is not None:
        days = [_day(session.session) for session in sound]
        levels = [scale * level for level in history.trend.levels]
        axes.plot(days, levels, color="black", linewidth=1.2, label="level found")
    for found in history.ranges:
        change = found.change
        axes.axvspan(_day(found.before), _day(found.after), color="tab:red", alpha=0.12)
        text = describe_change(change, f"from {sound[change.first].session.date[:10]}")
        axes.plot([], [], color="tab:red", alpha=0.3, linewidth=6, label=text)
    axes.set_ylabel(f"{metric_title(series.metric)}, {unit}")
    axes.xaxis_date()
    axes.set_title(f"{series.case.case_id}\non {series.case.accelerator}", fontsize=9)
    axes.legend(fontsize=8, loc="best")
    figure.autofmt_xdate()
    return figure


def _day(info: SessionInfo) -> float:
    date = datetime.datetime.fromisoformat(info.date)
    return float(matplotlib.dates.date2num(date))  # type: ignore[no-untyped-call]
