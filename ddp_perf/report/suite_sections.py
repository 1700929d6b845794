"""The sections of a suite beside its verdicts: notes, and how the time of its steps is spent."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.model import Media, Note, Part, Plot, Section, Table, notes
from ddp_perf.render.units import short_names
from ddp_perf.report.case_text import beside, settled_note
from ddp_perf.report.figures import utilisation_table
from ddp_perf.report.gains import gain_parts
from ddp_perf.report.groups import alike_lines
from ddp_perf.report.links import link_parts
from ddp_perf.report.profiles import profile_parts
from ddp_perf.report.rows import CaseRow, saving_notes
from ddp_perf.report.status import NOT_GREEN
from ddp_perf.report.step_terms import advice_lines, amdahl_lines, term_parts
from ddp_perf.report.suite_notes import details, suite_notes
from ddp_perf.session.result import SuiteResult

if TYPE_CHECKING:
    from ddp_perf.render.chart import Chart

_WHEN = (
    "Each figure is a median over launches, from just before the last warm-ups until just after the"
    " last timed step."
)


def suite_sections(suite: SuiteResult, rows: Sequence[CaseRow]) -> Iterator[Section]:
    """Yield the sections that have something to say."""
    sections: tuple[tuple[str, Media, Iterable[Part]], ...] = (
        ("links", "all", link_parts(suite)),
        ("profiles", "all", profile_parts(suite)),
        ("notes", "all", notes(_notes(suite, rows))),
        ("what each technique gains", "wide", gain_parts(suite)),
        ("where the time of a step goes", "page", _terms(suite, rows)),
        ("what the ranks use", "page", _use(rows)),
        ("scaling", "page", _scaling(suite, rows)),
        ("advice", "page", notes(_advice(suite))),
        ("what the verdicts rest on", "page", notes(details(suite))),
    )
    for title, media, found in sections:
        if parts := tuple(found):
            yield Section(title=title, parts=parts, media=media)


def _notes(suite: SuiteResult, rows: Sequence[CaseRow]) -> list[str]:
    """Return what was stored, and what a reader of a green suite should know, too."""
    names, stored = short_names(suite.measurements), saving_notes(suite)
    texts = [
        (names[row.case], text)
        for row in rows
        for text in (
            *([] if row.status in NOT_GREEN else _remarks(suite, row)),
            *([stored[row.case]] if row.case in stored and _lacks(suite, row.case) else []),
        )
    ]
    return [*suite_notes(suite), *alike_lines(texts, len(names))]


def _lacks(suite: SuiteResult, case_id: str) -> bool:
    """Return False if only what had no baseline was to be stored, and the case lacks none."""
    if suite.save_mode != "missing" or case_id in suite.saved:
        return True
    own = [found for found in suite.findings if found.case_id == case_id]
    return not all(found.verdict.outcome.is_compared for found in own)


def _remarks(suite: SuiteResult, row: CaseRow) -> Iterator[str]:
    """Yield what is known of a green case, such as that it became faster."""
    for finding in suite.asserted_findings():
        if finding.case_id != row.case:
            continue
        texts = beside(finding)
        if finding.verdict.outcome is Outcome.IMPROVEMENT or finding.off_level:
            texts = [finding.reason, *texts]
        if texts:
            outcome, title = finding.verdict.outcome.value, metric_title(finding.metric)
            yield f"{title}: {outcome}; {'; '.join(texts)}"
    if (note := settled_note(suite, row.case)) is not None:
        yield note


def _terms(suite: SuiteResult, rows: Sequence[CaseRow]) -> Iterator[Part]:
    parts = [*term_parts(suite)]
    if any(isinstance(part, Table) for part in parts):
        yield Plot(functools.partial(_term_charts, suite, rows))
    yield from parts


def _term_charts(suite: SuiteResult, rows: Sequence[CaseRow]) -> Iterator[Chart]:
    # Imported here, as below: charts take a third of a second, and only a page needs them.
    from ddp_perf.report.charts import case_stacks, term_chart

    yield term_chart(case_stacks(suite, rows))


def _use(rows: Sequence[CaseRow]) -> tuple[Part, ...]:
    table = utilisation_table(rows)
    return (table, Note(text=_WHEN)) if len(table.columns) > 1 else ()


def _scaling(suite: SuiteResult, rows: Sequence[CaseRow]) -> Iterator[Part]:
    if any(row.throughput is not None for row in rows):
        yield Plot(functools.partial(_scaling_charts, suite, rows))
    yield from notes(amdahl_lines(suite))


def _scaling_charts(suite: SuiteResult, rows: Sequence[CaseRow]) -> Iterator[Chart]:
    from ddp_perf.report.charts import scaling_charts

    return (chart for _, chart in scaling_charts(suite, rows))


def _advice(suite: SuiteResult) -> list[str]:
    names = short_names(suite.measurements)
    lines = ((name, text) for id_, name in names.items() for text in advice_lines(suite, id_))
    texts = ((name, text.removeprefix("- ")) for name, text in lines)
    return alike_lines(texts, len(names), key=str)  # its figures are what it is about
