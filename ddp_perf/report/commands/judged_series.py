"""A judged series of sessions, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from ddp_perf.baselines.save import Refused, Saved
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Explanation, Outcome
from ddp_perf.render.model import Note, Table, notes, words
from ddp_perf.render.terminal import Block
from ddp_perf.render.units import counted
from ddp_perf.report.session_report import build_suite
from ddp_perf.report.status import worst
from ddp_perf.report.suite_notes import headline
from ddp_perf.session.judge_results import JudgedSeries, RecordedSession
from ddp_perf.session.result import Conclusion

SCHEMA_VERSION = 1


class SessionVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts on one suite of one session, and what was stored of it."""

    file: str
    complete: bool  # False: written while the session was still running
    date: str  # ISO 8601, UTC
    suite: str
    accelerator: str  # the name of its baseline file without .json
    baseline_path: str  # of the file whose older sessions judged it
    injections: tuple[str, ...]  # slowed the ranks on purpose
    alpha: float  # chance of a false REGRESSION of each verdict
    conclusion: Conclusion
    failed: tuple[LaunchFailure, ...]
    findings: tuple[Finding, ...]
    explanations: dict[str, Explanation]  # by case id; of the newest session of a suite
    saved: dict[str, Saved]  # by case id
    not_saved: dict[str, Refused]  # by case id: asked for, and not stored


class SeriesFile(msgspec.Struct, frozen=True, kw_only=True):
    """The judged series: the verdicts of its sessions, without their measurements."""

    schema_version: int = SCHEMA_VERSION
    conclusion: Conclusion
    sessions: tuple[SessionVerdicts, ...]  # oldest first


def series_file(series: JudgedSeries) -> SeriesFile:
    """Return every finding of every session for programs."""
    return SeriesFile(conclusion=series.conclusion, sessions=tuple(map(_verdicts, series.sessions)))


def series_parts(series: JudgedSeries) -> Iterator[Block]:
    """Yield one line for each session, the newest one in full, and the next command."""
    rows = [(_when(one), one.result.suite, _counts(one), _worst(one)) for one in series.sessions]
    if rows:
        yield Table.of_texts(words("session", "suite", "verdicts", "worst"), rows)
    yield from dict.fromkeys(
        incomplete_line(one.file) for one in series.sessions if not one.complete
    )
    for session in series.newest:
        title = f"{headline(session.result)}, {_when(session)} ({session.file})"
        failed = (f"FAILED: {failure}" for failure in session.failed)
        report = build_suite(session.result)
        yield msgspec.structs.replace(
            report, about=notes([title]), notes=(*report.notes, *notes(failed))
        )
    yield f"{counted(len(series.sessions), 'session')}: {series.conclusion.value}"
    # The newest red session, which a command explains.
    red = [one.file for one in series.sessions if one.conclusion is Conclusion.REGRESSION]
    for file in red[-1:]:
        yield Note(text=f"next: ddp-perf explain {file}", kind="output")


def incomplete_line(file: str) -> str:
    """Return that a file may lack cases."""
    return f"{file} is incomplete: it was written while its session was still running"


def _verdicts(session: RecordedSession) -> SessionVerdicts:
    result = session.result
    return SessionVerdicts(
        file=session.file,
        complete=session.complete,
        date=result.date,
        suite=result.suite,
        accelerator=result.environment.accelerator_key,
        baseline_path=result.baseline_path,
        injections=result.injections,
        alpha=result.alpha,
        conclusion=session.conclusion,
        failed=session.failed,
        findings=result.findings,
        explanations=result.explanations,
        saved=result.saved,
        not_saved=result.not_saved,
    )


def _when(session: RecordedSession) -> str:
    return session.result.date[:16].replace("T", " ")


def _counts(session: RecordedSession) -> str:
    counts = Counter(found.verdict.outcome for found in session.result.findings)
    parts = [f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]]
    if session.failed:
        parts.append(f"{len(session.failed)} FAILED")
    if session.result.not_saved:
        parts.append(f"{len(session.result.not_saved)} not stored")
    return ", ".join(parts) or "nothing was measured"


def _worst(session: RecordedSession) -> str:
    """Return the worst verdict, unless all passed."""
    if session.failed:
        return f"FAILED: {session.failed[0].case_id}"
    if not session.result.findings or session.conclusion is Conclusion.PASS:
        return ""
    finding = worst(session.result, session.result.findings)
    return f"{finding.verdict.outcome.value}: {metric_title(finding.metric)} of {finding.case_id}"
