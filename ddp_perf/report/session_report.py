"""The report of a session: all of its cases, what is not green and why, and what was stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import STEP_TIME, metric_title
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.model import NextStep, Note, Report, Section, notes
from ddp_perf.render.units import short_names, without_figures
from ddp_perf.report.case_text import (
    CHANGED_TERMS,
    beside,
    explanation_lines,
    settled_causes,
    settled_note,
)
from ddp_perf.report.columns import suite_figures
from ddp_perf.report.groups import cases_text
from ddp_perf.report.rows import CaseRow, ReportSummary, by_suite, report_summary, resolved_text
from ddp_perf.report.status import NOT_GREEN, STORED, status_of
from ddp_perf.report.suite_notes import headline
from ddp_perf.report.suite_sections import suite_sections
from ddp_perf.session.result import SuiteResult

PAGE, DATA = "index.html", "comprehensive_summary.csv"
_ALSO = "also {}: "


def build_session(
    suites: Sequence[SuiteResult],
    summary: ReportSummary,
    step: NextStep | None,
    *,
    each: bool = False,
) -> Report:
    """Return what a person reads of a session, whose rows are in ``summary``.

    ``step`` is the next command after it. ``each``: cases with one reason have a section each.
    """
    return Report(
        title="performance",
        verdict=summary.status.value,
        status=summary.status,
        headline=summary.headline,
        table=suite_figures(summary.rows),
        about=notes(map(_measured, suites), media="wide"),
        notes=notes((*summary.ruled_out, *summary.untested)),
        sections=tuple(_sections(suites, summary, each=each)),
        next=step,
        page=PAGE,
        option="--ddp-report=DIR",
        data=DATA,
    )


def _measured(suite: SuiteResult) -> str:
    return f"{headline(suite)}, {suite.date[:16].replace('T', ' ')} UTC"


def _sections(
    suites: Sequence[SuiteResult], summary: ReportSummary, *, each: bool
) -> Iterator[Section]:
    for suite, rows in by_suite(suites, summary.rows):
        of = f"{suite.suite}: " if len(suites) > 1 else ""
        for section in (*_not_green(suite, rows, each=each), *suite_sections(suite, rows)):
            yield msgspec.structs.replace(section, title=f"{of}{section.title}")


def build_suite(suite: SuiteResult, *, each: bool = False) -> Report:
    """Return what a person reads of one suite."""
    report = build_session([suite], report_summary([suite], complete=True), None, each=each)
    return msgspec.structs.replace(report, title=suite.suite, about=())


# The cases that are not green. Those with one reason are one section.


def _not_green(suite: SuiteResult, rows: Sequence[CaseRow], *, each: bool) -> Iterator[Section]:
    """Yield the sections. Of cases with one reason, that with the most such verdicts is shown."""
    names = short_names(suite.measurements)
    groups: dict[tuple[str, ...], list[Section]] = {}
    for row in rows_not_green(rows):
        if row.verdict == STORED:
            continue  # a note has the file
        section = case_section(suite, row)
        alike = (row.verdict, *map(without_figures, _texts(section)))
        key = (row.case,) if each else alike
        groups.setdefault(key, []).append(section)
    for members in groups.values():
        shown = max(members, key=lambda section: len(str(section.parts)))
        same = all(_texts(section) == _texts(shown) for section in members)
        if len(members) > 1:  # one has its full name, which can be copied
            titles = [names[one.title] for one in members if one is not shown]
            titles.insert(0, names[shown.title])
            shown = msgspec.structs.replace(shown, title=cases_text(titles, len(names), alike=same))
        yield shown


def _texts(section: Section) -> list[str]:
    """Return what the section states, but for the metrics with the same verdict."""
    texts = (part.text for part in section.parts if isinstance(part, Note))
    return [text for text in texts if not text.startswith(_ALSO.format(section.verdict))]


def rows_not_green(rows: Sequence[CaseRow]) -> list[CaseRow]:
    """Return the cases that are not green, the red ones first."""
    return [row for status in NOT_GREEN for row in rows if row.status is status]


def case_section(suite: SuiteResult, row: CaseRow) -> Section:
    """Return why a case is not green."""
    return Section(
        title=row.case, verdict=row.verdict, status=row.status, parts=tuple(_reasons(suite, row))
    )


def _reasons(suite: SuiteResult, row: CaseRow) -> Iterator[Note]:
    """Yield the reason of the worst verdict, which others share it, and the causes."""
    own = [found for found in suite.findings if found.case_id == row.case]
    if row.in_words is not None and (row.metric != STEP_TIME.name or ", " in row.in_words):
        yield Note(text=row.in_words)  # else the reason states as much
    title = "" if row.metric is None or not _is_judged(row) else metric_title(row.metric)
    worst = [found for found in own if found.metric == row.metric]
    reason = resolved_text(suite, worst[0]) if row.verdict == STORED else row.reason
    named = not title or reason.startswith(title)
    yield Note(text=reason if named else f"{title}: {reason}")
    if also := [metric_title(one.metric) for one in own if _is_alike(suite, one, row)]:
        yield Note(text=f"{_ALSO.format(row.verdict)}{', '.join(also)}")
    for finding in worst:
        yield from notes(beside(finding))
    if (note := settled_note(suite, row.case)) is not None:
        yield Note(text=note)
    settled = settled_causes(suite, row.case)
    yield from (Note(text=text, kind="change") for text in settled)
    if (why := suite.explanations.get(row.case)) is not None:
        # Parts that do not show a slow-down say nothing beside a line that is to blame.
        says_nothing = settled and all(cause.kind == "unexplained" for cause in why.causes)
        first, *causes = map(str.strip, explanation_lines(why))
        yield Note(text=first, media="page" if says_nothing else "all")
        for text in causes:
            is_detail = says_nothing or text.startswith(CHANGED_TERMS)  # the cause has its term
            yield Note(text=text, kind="change", media="page" if is_detail else "all")


def _is_judged(row: CaseRow) -> bool:
    return not row.verdict.startswith((Outcome.NO_BASELINE.value, STORED))


def _is_alike(suite: SuiteResult, finding: Finding, row: CaseRow) -> bool:
    """Return whether another verdict on the case is as bad, and has no other reason."""
    is_other = finding.metric != row.metric
    alike = row.verdict.startswith(finding.verdict.outcome.value)
    return is_other and alike and _is_judged(row) and status_of(suite, finding) is row.status
