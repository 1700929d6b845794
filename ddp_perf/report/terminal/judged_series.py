"""A judged series of sessions, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from ddp_perf.baselines.save import Refused, Saved
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Explanation, Outcome
from ddp_perf.render.tables import NARROWEST, plain_table, rendered
from ddp_perf.render.units import counted, to_json
from ddp_perf.report.status import worst
from ddp_perf.report.terminal.table import headline, suite_table
from ddp_perf.session.judge_results import JudgedSeries, RecordedSession
from ddp_perf.session.result import Conclusion

SCHEMA_VERSION = 1
_WIDEST = 30  # characters of a column beside the worst verdict


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


def series_json(series: JudgedSeries) -> str:
    """Return every finding of every session."""
    return to_json(
        SeriesFile(
            conclusion=series.conclusion,
            sessions=tuple(map(_verdicts, series.sessions)),
        )
    )


def series_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``ddp-perf judge --json``."""
    return msgspec.json.schema(SeriesFile)


def series_text(series: JudgedSeries, width: int) -> str:
    """Return one line for each session, the newest one in full, and the next command."""
    lines = _overview(series, max(width, NARROWEST))
    lines += [
        f"{file} is incomplete: it was written while its session was still running"
        for file in dict.fromkeys(one.file for one in series.sessions if not one.complete)
    ]
    for session in series.newest:
        title = f"{headline(session.result)}, {_when(session)} ({session.file})"
        lines += ["", title, suite_table(session.result, width)]
        lines += [f"FAILED: {failure}" for failure in session.failed]
    lines += ["", f"{counted(len(series.sessions), 'session')}: {series.conclusion.value}"]
    return "\n".join([*lines, *_next(series)])


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


def _overview(series: JudgedSeries, width: int) -> list[str]:
    """Return a table with a line for each session; the worst verdict is cut at the width."""
    if not series.sessions:
        return []
    rows = [
        (_when(session), session.result.suite, _counts(session), _worst(session))
        for session in series.sessions
    ]
    table = plain_table()
    left = width
    *beside, _ = zip(*rows, strict=True)
    for heading, cells in zip(("session", "suite", "verdicts"), beside, strict=True):
        widest = min(max(map(len, (heading, *cells))), _WIDEST)
        table.add_column(heading, width=widest)
        left -= widest + len("  ")
    table.add_column("worst", width=max(left, _WIDEST // 2), no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    return rendered(table, width)


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
    """Return the worst verdict with its reason, unless all passed."""
    if session.failed:
        return str(session.failed[0])
    if not session.result.findings or session.conclusion is Conclusion.PASS:
        return ""
    finding = worst(session.result, session.result.findings)
    what = f"{finding.verdict.outcome.value}: {metric_title(finding.metric)} of {finding.case_id}"
    return f"{what}: {finding.verdict.reason}"


def _next(series: JudgedSeries) -> list[str]:
    """Return the command that explains the newest red session, if there is one."""
    red = [one for one in series.sessions if one.conclusion is Conclusion.REGRESSION]
    return [f"next: ddp-perf explain {red[-1].file}"] if red else []
