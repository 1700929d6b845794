"""The page of the gate itself: what its audits found, month by month."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import altair as alt

from ddp_perf.core.verdict import GateAudit
from ddp_perf.history.text import AUDIT_MEANING
from ddp_perf.render.chart import BLUE, Chart, layered, points, tips, titled
from ddp_perf.render.model import Cell, Column, Plot, Report, Section, Status, Table, notes, words
from ddp_perf.render.units import ABSENT, counted, percent_range, short_percent
from ddp_perf.site.views import SiteViews
from ddp_perf.stats.interval import share_found

_COLUMNS = (
    *words("month"),
    Column(title="hidden slow-downs", meaning="of the case's tolerance or more"),
    Column(title="found"),
    Column(title="95 % interval", meaning="of the share that is found"),
    Column(title="not slowed", meaning="audits that hid nothing"),
    Column(title="called slower", meaning="of those that hid nothing: false alarms"),
)


def gate_page(views: SiteViews) -> Report:
    """Return the share of hidden slow-downs that the gate found, by month."""
    hidden = _meant(views.audits)
    found = share_found(sum(one.is_found for one in hidden), len(hidden)) if hidden else None
    share = f"{found.found} of {counted(len(hidden), 'hidden slow-down')} found" if found else ""
    months = sorted({audit.date[:7] for audit in views.audits}, reverse=True)
    by_month = [(one, [a for a in views.audits if a.date.startswith(one)]) for one in months]
    plot = Plot(functools.partial(_charts, by_month))
    return Report(
        title="The gate",
        verdict=share or "No audit so far",
        status=Status.UNTESTED,
        headline=f"{counted(len(views.audits), 'audit')}; --ddp-audit ends a session with one",
        table=Table(label="audits", columns=_COLUMNS, rows=tuple(_row(*one) for one in by_month)),
        notes=notes([AUDIT_MEANING]),
        sections=(Section(title="Power over time", parts=(plot,), opened=True),) if hidden else (),
    )


def _meant(audits: Sequence[GateAudit]) -> list[GateAudit]:
    """Return the audits whose slow-down is meant to be red."""
    return [audit for audit in audits if audit.size and audit.size >= audit.tolerance]


def _row(month: str, audits: Sequence[GateAudit]) -> tuple[Cell, ...]:
    hidden = _meant(audits)
    nothing = [audit for audit in audits if not audit.size]
    share = share_found(sum(one.is_found for one in hidden), len(hidden)) if hidden else None
    return (
        Cell(month, month),
        Cell(str(len(hidden)), len(hidden)),
        Cell(short_percent(share.found / len(hidden)), share.found / len(hidden))
        if share
        else Cell(ABSENT),
        Cell(percent_range(*share.interval)) if share else Cell(ABSENT),
        Cell(str(len(nothing)), len(nothing)),
        Cell(str(sum(one.is_found for one in nothing)), sum(one.is_found for one in nothing)),
    )


def _charts(by_month: Sequence[tuple[str, Sequence[GateAudit]]]) -> Iterator[Chart]:
    rows = []
    for month, audits in by_month:
        if hidden := _meant(audits):
            share = share_found(sum(one.is_found for one in hidden), len(hidden))
            low, high = share.interval
            found = share.found / len(hidden)
            rows.append({"month": month, "found": found, "low": low, "high": high})
    shown = points(rows)
    scale = alt.Scale(domain=[0, 1])
    axis = alt.Y("found:Q", title="share found", scale=scale, axis=alt.Axis(format="%"))
    when = alt.X("month:O", title=None)
    bars = shown.mark_rule(color=BLUE, opacity=0.4).encode(when, alt.Y("low:Q"), alt.Y2("high"))
    dots = shown.mark_point().encode(when, axis, tooltip=tips("month:N", "found:Q"))
    title = "Hidden slow-downs that the gate found, with the 95 % interval"
    yield titled(layered(bars, dots), title)
