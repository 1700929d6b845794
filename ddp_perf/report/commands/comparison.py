"""The comparison of results files, or of two machines, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.measurement import Finding
from ddp_perf.core.verdict import FALSE_ALARM_RATE, Explanation
from ddp_perf.render.model import CASE, Report, Status, Table, figures, notes, words
from ddp_perf.render.terminal import Block
from ddp_perf.render.units import short_percent, with_interval
from ddp_perf.report.case_text import false_alarm_line
from ddp_perf.report.commands.judged_series import incomplete_line
from ddp_perf.report.next_steps.comparison import after_comparison
from ddp_perf.report.rows import report_summary
from ddp_perf.report.session_report import build_session
from ddp_perf.report.suite_notes import headline
from ddp_perf.scaling.machines import (
    CasePair,
    FigureName,
    LinkPair,
    MachinesSideBySide,
    PublishedEfficiency,
)
from ddp_perf.session.compare_sessions import (
    ComparedSession,
    ComparedSide,
    MissingComparison,
    SessionComparison,
)
from ddp_perf.session.result import Conclusion
from ddp_perf.stats.interval import CONFIDENCE

# The comparison of results files, as text and as JSON.


SCHEMA_VERSION = 1
_FEW = 6  # with fewer sessions the spread of sessions is assumed, unless the cases show it


class ComparisonFile(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison, without the content of the files."""

    schema_version: int = SCHEMA_VERSION
    conclusion: Conclusion
    old: tuple[str, ...]  # files, oldest session first
    new: tuple[str, ...]
    incomplete: tuple[str, ...]  # files that were written while their session was running
    injected: dict[str, list[str]]  # by file: the injections of its session
    changed: tuple[str, ...]
    false_alarm_rate: float
    alpha: float
    failed: tuple[LaunchFailure, ...]
    gaps: tuple[MissingComparison, ...]
    findings: tuple[Finding, ...]
    explanations: dict[str, Explanation]  # by case id


def comparison_file(comparison: SessionComparison) -> ComparisonFile:
    """Return the figures of a comparison for programs."""
    return ComparisonFile(
        **_files_of(comparison.old, comparison.new),
        conclusion=comparison.conclusion,
        changed=comparison.changed,
        false_alarm_rate=FALSE_ALARM_RATE,
        alpha=comparison.alpha,
        failed=comparison.failed,
        gaps=comparison.gaps,
        findings=tuple(comparison.findings),
        explanations={
            case_id: why
            for suite in comparison.judged
            for case_id, why in suite.explanations.items()
        },
    )


_STATUS = {
    Conclusion.PASS: Status.GREEN,
    Conclusion.REGRESSION: Status.RED,
    Conclusion.UNDECIDED: Status.UNDECIDED,
}


def build_comparison(comparison: SessionComparison) -> Report:
    """Return what a person reads of a comparison: all suites, and why it did not pass."""
    suites = comparison.judged
    summary = report_summary(suites, complete=True)
    changed = [f"changed: {', '.join(comparison.changed)}"] if comparison.changed else []
    return msgspec.structs.replace(
        build_session(suites, summary, after_comparison(comparison)),
        title="B against A",
        verdict=_conclusion(comparison),
        status=_STATUS[comparison.conclusion],
        about=notes(
            [*_session_lines(comparison.old, comparison.new), *map(headline, suites), *changed]
        ),
        notes=notes([*summary.ruled_out, *_failures(comparison), *_remarks(comparison)]),
        certainty=false_alarm_line(FALSE_ALARM_RATE, comparison.alpha),
    )


def _failures(comparison: SessionComparison) -> Iterator[str]:
    yield from (f"FAILED: {failure}" for failure in comparison.failed)
    yield from (f"NOT COMPARED: {gap.case_id}: {gap.reason}" for gap in comparison.gaps)


def _conclusion(comparison: SessionComparison) -> str:
    """Return the conclusion. A session always passes against itself, so such a PASS is marked."""
    passed = comparison.conclusion is Conclusion.PASS
    mark = ", but a session is on both sides" if passed and comparison.same_session else ""
    return f"{comparison.conclusion.value}{mark}"


def _remarks(comparison: SessionComparison) -> Iterator[str]:
    """Yield what the verdicts are about."""
    old, new = comparison.old.sessions, comparison.new.sessions
    if comparison.same_session:
        yield "A and B contain the same session: this shows what its launches can decide"
    if len(old) + len(new) < _FEW:
        yield (
            "with fewer than six sessions in all, how much sessions differ is assumed"
            " unless the cases together show it; a REGRESSION, and each bound above, counts that;"
            " a PASS is about these sessions, by their launches"
        )
    if len(old) + len(new) > 2 and not comparison.in_turn:
        yield (
            "A and B were not measured in turn: what changed on the machine between them counts"
            " as a change of the code"
        )


# The sessions of both sides, of one machine or of two.


def _files_of(old: ComparedSide, new: ComparedSide) -> dict[str, Any]:
    """Return what a file for programs says of the sessions."""
    sessions = (*old.sessions, *new.sessions)
    return {
        "old": tuple(session.name for session in old.sessions),
        "new": tuple(session.name for session in new.sessions),
        "incomplete": tuple(session.name for session in sessions if not session.complete),
        "injected": {session.name: _injections(session) for session in sessions},
    }


def _session_lines(old: ComparedSide, new: ComparedSide) -> list[str]:
    """Return a line for each session, the older side first, and for each incomplete file."""
    lines = [
        _session(label, session)
        for label, side in (("A", old), ("B", new))
        for session in side.sessions
    ]
    incomplete = [one.name for one in (*old.sessions, *new.sessions) if not one.complete]
    return [*lines, *map(incomplete_line, incomplete)]


def _session(label: str, session: ComparedSession) -> str:
    """Return the side of a session, its file, date and commit, and what slowed it."""
    if not session.suites:
        return f"{label}: {session.name} (nothing was measured)"
    first = session.suites[0]
    commit = first.environment.commit or "unknown"
    text = f"{label}: {session.name} ({first.date[:16]}, commit {commit})"
    if injections := _injections(session):
        text += f", slowed on purpose: {', '.join(injections)}"
    return text


def _injections(session: ComparedSession) -> list[str]:
    return sorted({injection for suite in session.suites for injection in suite.injections})


# Two machines side by side, as text and as JSON: tables without a verdict.


MACHINES_SCHEMA_VERSION = 1
_TITLES: dict[FigureName, tuple[str, float]] = {
    "step_s": ("step, ms", 1e3),
    "throughput": ("{unit} /s", 1),
    "efficiency": ("efficiency, %", 100),
    "exposed_s": ("exposed comm., ms", 1e3),
}


class MachinesFile(msgspec.Struct, frozen=True, kw_only=True):
    """Two machines side by side, without the content of the files."""

    schema_version: int = MACHINES_SCHEMA_VERSION
    conclusion: Conclusion = Conclusion.UNDECIDED  # of two machines there is no verdict
    old: tuple[str, ...]  # files, oldest session first
    new: tuple[str, ...]
    incomplete: tuple[str, ...]  # files that were written while their session was running
    injected: dict[str, list[str]]  # by file
    differences: tuple[str, ...]
    confidence: float = CONFIDENCE  # of the figures of cases
    cases: tuple[CasePair, ...]
    links: tuple[LinkPair, ...]
    left_out: dict[str, str]


def machines_file(found: MachinesSideBySide) -> MachinesFile:
    """Return the figures of both machines for programs."""
    return MachinesFile(
        **_files_of(found.old, found.new),
        differences=found.differences,
        cases=found.cases,
        links=found.links,
        left_out=found.left_out,
    )


def machines_parts(found: MachinesSideBySide) -> Iterator[Block]:
    """Yield the tables of cases and links, what is published, and why there is no verdict."""
    yield from _session_lines(found.old, found.new)
    yield f"two machines: {', '.join(found.differences)}"
    yield from (table for table in (_cases_table(found), _links_table(found)) if table.rows)
    yield from (*_notes(found), *dict.fromkeys(_published_lines(found)))
    yield "B against A: NO VERDICT: two machines"


def _cases_table(found: MachinesSideBySide) -> Table:
    columns = (CASE, *words("figure"), *figures("A", "B", "B ÷ A"))
    rows = (
        (
            pair.case_id,
            title.format(unit=pair.unit),
            with_interval(values.old, factor),
            with_interval(values.new, factor),
            with_interval(values.ratio),
        )
        for pair in found.cases
        for figure, (title, factor) in _TITLES.items()
        if (values := pair.figures.get(figure)) is not None
    )
    return msgspec.structs.replace(Table.of_texts(columns, rows), of_cases=True)


def _links_table(found: MachinesSideBySide) -> Table:
    rows = (
        (
            f"{link.name} ({short_percent(link.confidence)})",
            title,
            with_interval(values.old, factor),
            with_interval(values.new, factor),
        )
        for link in found.links
        for title, values, factor in (
            ("latency, µs", link.latency_s, 1e6),
            ("bandwidth, GB/s", link.bytes_per_s, 1e-9),
        )
    )
    return Table.of_texts((*words("link", "figure"), *figures("A", "B")), rows)


def _notes(found: MachinesSideBySide) -> Iterator[str]:
    for pair in found.cases:
        for why in pair.disturbed:
            yield f"DISTURBED: {pair.case_id}: {why}"
    for case_id, why in found.left_out.items():
        yield f"NOT COMPARED: {case_id}: {why}"
    if found.links:
        yield "latency and bandwidth of a link are fitted by the ring model"
    beyond = "sessions"
    if any(len(side.sessions) == 1 for side in (found.old, found.new)):
        beyond = "launches; how sessions differ is not in them"
    yield f"means with {short_percent(CONFIDENCE)} intervals of the {beyond}"


def _published_lines(found: MachinesSideBySide) -> Iterator[str]:
    for pair in found.cases:
        for one in pair.published:
            yield _published_line(pair, one)


def _published_line(pair: CasePair, one: PublishedEfficiency) -> str:
    figures = " to ".join(map(short_percent, one.efficiency))
    measured = pair.figures.get("efficiency")
    here = None if measured is None else measured.old if one.side == "A" else measured.new
    shown = with_interval(here, 100, "%")
    kind = "expected" if one.modelled else "published"
    return (
        f"{kind} for {one.side}, {pair.case_id}: efficiency {figures}; here {shown}"
        f" ({one.hardware}; {one.document}: {one.where})"
    )
