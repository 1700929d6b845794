"""The report as one HTML file. It uses no network, and all texts in it are escaped."""

from __future__ import annotations

import itertools

import jinja2
from markupsafe import Markup

from ddp_perf.core.metric import EXACT, metric_title
from ddp_perf.history.audits import AUDIT_MEANING
from ddp_perf.report.columns import percent_text, ratio_text
from ddp_perf.report.gains import HEADINGS, MEANING, NOT_AS_THE_DOCUMENT, TITLE
from ddp_perf.report.html.plots.power import power_plot
from ddp_perf.report.html.sections import suite_section
from ddp_perf.report.next_step import next_step
from ddp_perf.report.rows import ReportSummary
from ddp_perf.report.source import ReportSource
from ddp_perf.report.terms import HIDDEN, MEANINGS
from ddp_perf.report.verdicts import Status
from ddp_perf.selftest.text import conclusion_of


def report_html(source: ReportSource, summary: ReportSummary) -> bytes:
    """Return the whole page in UTF-8. ``summary`` has the rows of ``source``."""
    rows = iter(summary.rows)
    sections = [
        suite_section(suite, list(itertools.islice(rows, len(suite.measurements))), source.sessions)
        for suite in source.suites
    ]
    curve = source.curve
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            summary=summary,
            Status=Status,
            sections=sections,
            next=next_step(source.suites),
            meanings=MEANINGS,
            hidden=HIDDEN,
            gain_title=TITLE,
            gain_headings=HEADINGS,
            gain_meaning=f"{MEANING} {NOT_AS_THE_DOCUMENT} No verdict depends on this table.",
            curve=curve,
            power=power_plot(curve) if curve else None,
            conclusion=conclusion_of(curve) if curve else "",
            audits=source.audits,
            audit_meaning=AUDIT_MEANING,
            false_alarms=false_alarm_rate(source),
            titles=_titles(summary),
            slowed=sorted({text for suite in source.suites for text in suite.injections}),
        )
    )
    return page.encode("utf-8", "replace")  # UTF-8 has no code for a lone surrogate


def false_alarm_rate(source: ReportSource) -> float:
    """Return the probability of any false REGRESSION: the sum over all tests (Bonferroni)."""
    return sum(
        suite.alpha
        for suite in source.suites
        for finding in suite.findings
        if finding.metric not in EXACT and finding.target is None
    )


def _titles(summary: ReportSummary) -> dict[str, str]:
    return {row.metric: metric_title(row.metric) for row in summary.rows if row.metric}


def environment() -> jinja2.Environment:
    """Return the environment of the page templates, with their filters."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ddp_perf.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent_text, "times": ratio_text, "sorts": _sorts}
    return environment


def _sorts(value: object) -> Markup:
    """Return the attribute that sorts a cell. A cell without a figure is sorted last."""
    return Markup("") if value is None else Markup(' data-v="{}"').format(value)
