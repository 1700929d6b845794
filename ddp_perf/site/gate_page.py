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
from ddp_perf.stats.interval import Share, share_found

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
    power = _power(views.audits)
    found = f"{power.found} of {counted(power.trials, 'hidden slow-down')} found"
    months = sorted({audit.date[:7] for audit in views.audits}, reverse=True)
    by_month = [(one, [a for a in views.audits if a.date.startswith(one)]) for one in months]
    plot = Plot(functools.partial(_charts, by_month))
    chart = Section(title="Power over time", parts=(plot,), opened=True)
    return Report(
        title="The gate",
        verdict=found if power.trials else "No hidden slow-down so far",
        status=Status.UNTESTED,
        headline=f"{counted(len(views.audits), 'audit')}; --ddp-audit ends a session with one",
        table=Table(label="audits", columns=_COLUMNS, rows=tuple(_row(*one) for one in by_month)),
        notes=notes([AUDIT_MEANING]),
        sections=(chart,) if power.trials else (),
    )


def _power(audits: Sequence[GateAudit]) -> Share:
    """Return the share found of the slow-downs that are meant to be red."""
    meant = [audit for audit in audits if audit.size and audit.size >= audit.tolerance]
    return share_found(sum(audit.is_found for audit in meant), len(meant))


def _row(month: str, audits: Sequence[GateAudit]) -> tuple[Cell, ...]:
    power = _power(audits)
    nothing = [audit for audit in audits if not audit.size]
    alarms = sum(audit.is_found for audit in nothing)
    return (
        Cell(month, month),
        Cell(str(power.trials), power.trials),
        Cell(ABSENT if power.value is None else short_percent(power.value), power.value),
        Cell(percent_range(*power.interval) if power.trials else ABSENT),
        Cell(str(len(nothing)), len(nothing)),
        Cell(str(alarms), alarms),
    )


def _charts(by_month: Sequence[tuple[str, Sequence[GateAudit]]]) -> Iterator[Chart]:
    rows = []
    for month, audits in by_month:
        power = _power(audits)
        if power.trials:
            low, high = power.interval
            rows.append({"month": month, "found": power.value, "low": low, "high": high})
    shown = points(rows)
    scale = alt.Scale(domain=[0, 1])
    axis = alt.Y("found:Q", title="share found", scale=scale, axis=alt.Axis(format="%"))
    when = alt.X("month:O", title=None)
    bars = shown.mark_rule(color=BLUE, opacity=0.4).encode(when, alt.Y("low:Q"), alt.Y2("high"))
    dots = shown.mark_point().encode(when, axis, tooltip=tips("month:N", "found:Q"))
    title = "Hidden slow-downs that the gate found, with the 95 % interval"
    yield titled(layered(bars, dots), title)
