"""The comparison of two results files, as text and as JSON."""

from __future__ import annotations

import msgspec

from ddp_perf.core.explanation import Explanation
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.measurement import Finding
from ddp_perf.render.units import to_json
from ddp_perf.report.terminal.table import headline, suite_table
from ddp_perf.report.terminal.text import false_alarm_line
from ddp_perf.session.compare_sessions import (
    ComparedSession,
    MissingComparison,
    SessionComparison,
)
from ddp_perf.session.conclusion import Conclusion

SCHEMA_VERSION = 1


class ComparisonFile(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison, without the content of the two files."""

    schema_version: int = SCHEMA_VERSION
    conclusion: Conclusion
    old: str
    new: str
    incomplete: tuple[str, ...]  # files that were written while their session was running
    injected: dict[str, list[str]]  # by file: the injections of its session
    changed: tuple[str, ...]
    false_alarm_rate: float
    alpha: float
    failed: tuple[LaunchFailure, ...]
    gaps: tuple[MissingComparison, ...]
    findings: tuple[Finding, ...]
    explanations: dict[str, Explanation]  # by case id


def comparison_json(comparison: SessionComparison) -> str:
    """Return the figures of a comparison."""
    file = ComparisonFile(
        conclusion=comparison.conclusion,
        old=comparison.old.name,
        new=comparison.new.name,
        incomplete=tuple(side.name for side in _sides(comparison) if not side.complete),
        injected={side.name: _injections(side) for side in _sides(comparison)},
        changed=comparison.changed,
        false_alarm_rate=comparison.false_alarm_rate,
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
    return to_json(file)


def comparison_text(comparison: SessionComparison, width: int) -> str:
    """Return the tables, and every reason why the comparison did not pass."""
    lines = [_describe(label, side) for label, side in zip("AB", _sides(comparison), strict=True)]
    lines += [
        f"{side.name} is incomplete: it was written while its session was still running"
        for side in _sides(comparison)
        if not side.complete
    ]
    if comparison.changed:
        lines.append(f"changed: {', '.join(comparison.changed)}")
    for suite in comparison.judged:
        lines += ["", headline(suite), suite_table(suite, width)]
    lines += ["", *(f"FAILED: {failure}" for failure in comparison.failed)]
    lines += [f"NOT COMPARED: {gap.case_id}: {gap.reason}" for gap in comparison.gaps]
    lines += [
        false_alarm_line(comparison.false_alarm_rate, comparison.alpha),
        f"B against A: {comparison.conclusion.value}",
    ]
    return "\n".join(lines)


def _sides(comparison: SessionComparison) -> tuple[ComparedSession, ComparedSession]:
    return comparison.old, comparison.new


def _describe(label: str, side: ComparedSession) -> str:
    if not side.suites:
        return f"{label}: {side.name} (nothing was measured)"
    first = side.suites[0]
    commit = first.environment.commit or "unknown"
    text = f"{label}: {side.name} ({first.date[:16]}, commit {commit})"
    if injections := _injections(side):
        text += f", slowed on purpose: {', '.join(injections)}"
    return text


def _injections(side: ComparedSession) -> list[str]:
    return sorted({injection for suite in side.suites for injection in suite.injections})
