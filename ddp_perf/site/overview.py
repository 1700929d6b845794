"""The overview of a site: a line for each case, with its sessions as a small curve."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from markupsafe import Markup

from ddp_perf.history.standing import State
from ddp_perf.history.text import figure_text, unit_of
from ddp_perf.render.model import CASE, Cell, Column, Report, Status, Table
from ddp_perf.render.units import ABSENT, counted, percent_change
from ddp_perf.site.links import case_link
from ddp_perf.site.views import CaseView, SiteViews

_WIDTH, _HEIGHT = 130, 26  # pixels of a curve
_MOST_POINTS = 90
_COLUMNS = (
    CASE,
    Column(title="standing", words=True, filtered=True),
    Column(title="sessions over time", words=True),
    Column(title="newest", meaning="step time of the newest session"),
    Column(title="change", meaning="of the newest six sessions against the first five"),
    Column(title="sessions"),
    *(Column(title=one, words=True, filtered=True) for one in ("suite", "machine", "strategy")),
    Column(title="ranks", filtered=True),
)


def overview(views: SiteViews) -> Report:
    """Return the page of all cases, the red ones first."""
    states = [one.state for view in views.cases for one in view.open]
    opened, known = states.count(State.OPEN), states.count(State.ACKNOWLEDGED)
    dates = [view.info.date for view in views.cases]
    parts = [
        f"{counted(len(views.cases), 'case')} on"
        f" {counted(len({view.case.accelerator for view in views.cases}), 'machine')}",
        *([f"{known} acknowledged"] if known else []),
        f"newest session {max(dates)[:16].replace('T', ' ')} UTC",
    ]
    return Report(
        title="Training speed, case by case",
        verdict=counted(opened, "open regression") if opened else "No open regression",
        status=Status.RED if opened else Status.GREEN,
        headline=", ".join(parts),
        table=Table(label="cases", columns=_COLUMNS, rows=tuple(map(_row, views.cases))),
    )


def _row(view: CaseView) -> tuple[Cell, ...]:
    history, work = view.main, view.case.work
    status, word = view.standing
    sound = history.series.sound()
    newest = sound[-1].figure.value if sound else None
    distance = history.trend.distance if history.trend else None
    ranks = int(work.get("world_size", 1))
    strategy = str(work.get("strategy") or work.get("collective.kind") or "script")
    return (
        Cell(case_link(view), view.case.case_id),
        Cell(word, list(Status).index(status), status),
        Cell(curve(history.series.metric, [point.figure.value or 0.0 for point in sound], status)),
        Cell(figure_text(history.series.metric, newest, unit=True), newest),
        Cell(percent_change(distance.ratio), distance.ratio) if distance else Cell(ABSENT),
        Cell(f"{len(history.series.sessions):,}", len(history.series.sessions)),
        Cell(view.suite, view.suite),
        Cell(view.case.accelerator, view.case.accelerator),
        Cell(strategy, strategy),
        Cell(str(ranks), ranks),
    )


def curve(metric: str, values: Sequence[float], status: Status) -> str:
    """Draw sessions as a curve without axes; neighbours share a point if there are too many."""
    if len(values) < 2:
        return ABSENT
    shown = _shortened(values)
    low, high = min(shown), max(shown)
    span = high - low or 1.0
    points = [
        (
            round(1 + at * (_WIDTH - 6) / (len(shown) - 1)),
            round(_HEIGHT - 3 - (value - low) / span * (_HEIGHT - 6)),
        )
        for at, value in enumerate(shown)
    ]
    path = "M" + "L".join(f"{x} {y}" for x, y in points)
    unit, scale = unit_of(metric)
    least, most = scale * min(values), scale * max(values)
    label = f"{len(values):,} sessions, {least:.4g} to {most:.4g} {unit}"
    x, y = points[-1]
    return Markup(
        '<svg class="curve {}" width="{}" height="{}" role="img" aria-label="{}">'
        '<path d="{}"/><circle cx="{}" cy="{}" r="2.5"/></svg>'
    ).format(status.value, _WIDTH, _HEIGHT, label, path, x, y)


def _shortened(values: Sequence[float]) -> list[float]:
    """Return the medians of equal parts: one slow session is no slow-down."""
    parts = min(_MOST_POINTS, len(values))
    bounds = [round(part * len(values) / parts) for part in range(parts + 1)]
    return [statistics.median(values[start:end]) for start, end in itertools.pairwise(bounds)]
