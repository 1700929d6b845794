"""A case's nights as a picture: each by its verdict, the levels and drifts that were found."""

from __future__ import annotations

import datetime
import io
from pathlib import Path

from matplotlib.figure import Figure

from ddp_perf.core.verdict import Outcome
from ddp_perf.report.history import describe_change
from ddp_perf.report.text import metric_title
from ddp_perf.session.history import CaseHistory
from ddp_perf.system.files import replace_file

# Shape as well as colour: neither alone.
_MARKERS = {
    Outcome.REGRESSION: ("v", "tab:red"),
    Outcome.SUSPECT: ("D", "tab:orange"),
    Outcome.INVALID: ("x", "0.6"),
}
_PLAIN = ("o", "tab:blue")


def write_history_plot(path: Path, history: CaseHistory) -> None:
    """A PNG, whole or not at all. Raises OSError."""
    data = io.BytesIO()
    history_figure(history).savefig(data, format="png", dpi=120)
    replace_file(path, data.getvalue())


def history_figure(history: CaseHistory) -> Figure:
    """Date against the figure, in the unit of the metric."""
    series, sound = history.series, history.series.sound()
    figure = Figure(figsize=(9.0, 5.0), layout="constrained")
    axes = figure.subplots()
    groups: dict[tuple[str, str, str], list[tuple[datetime.datetime, float]]] = {}
    for night in series.nights:
        verdict, value = night.figure.verdict, night.figure.value
        if value is None or night.session.injections:
            continue
        outcome = verdict.outcome if verdict else None
        marker, colour = _MARKERS.get(outcome, _PLAIN) if outcome else _PLAIN
        label = outcome.value if outcome in _MARKERS and outcome else "night"
        groups.setdefault((label, marker, colour), []).append((_date(night.session.date), value))
    for (label, marker, colour), points in groups.items():
        dates, values = zip(*points, strict=True)
        axes.scatter(dates, values, marker=marker, color=colour, s=22, label=label)
    if history.trend is not None:
        dates = [_date(night.session.date) for night in sound]
        axes.plot(dates, history.trend.levels, color="black", linewidth=1.2, label="level found")
    for found in history.ranges:
        change = found.change
        axes.axvspan(
            _date(found.before.date), _date(found.after.date), color="tab:red", alpha=0.12
        )
        said = describe_change(change, f"from {sound[change.first].session.date[:10]}")
        axes.plot([], [], color="tab:red", alpha=0.3, linewidth=6, label=said)
    axes.set_ylabel(metric_title(series.metric))
    axes.set_title(f"{series.case.case_id}\non {series.case.accelerator}", fontsize=9)
    axes.legend(fontsize=8, loc="best")
    figure.autofmt_xdate()
    return figure


def _date(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
