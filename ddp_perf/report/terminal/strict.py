"""The lines on what a session does not gate: what rotates, what waits, what is never measured."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import EXACT, metric_title
from ddp_perf.core.metric_history import LEAST_SESSIONS
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import counted
from ddp_perf.session.result import SuiteResult, is_never_measured, is_waiting


def rotating_lines(result: SuiteResult) -> list[str]:
    """Return a line on the cases whose times fail nothing, if the suite has some."""
    if not (rotating := [case for case in result.measurements if not result.gates(case)]):
        return []
    verb = "rotates" if len(rotating) == 1 else "rotate"
    return [
        f"{counted(len(rotating), 'case')} {verb} over a week, and may only be red by structure and"
        " loss: times and memory are reported"
    ]


def strict_lines(result: SuiteResult) -> list[str]:
    """Return a line on what was INVALID too often, and one on what is gated if every case waits.

    A waiting case does not count as undecided, so --ddp-strict alone does not fail it.
    """
    never = [
        f"{metric_title(found.metric)} of {found.case_id} for {found.unmeasured + 1} sessions"
        for found in result.asserted_findings()
        if is_never_measured(found)
    ]
    lines = [f"--ddp-strict: INVALID in a row, so nothing gates it: {', '.join(never)}"]
    return [*(lines if never else ()), *_waiting_lines(result)]


def _waiting_lines(result: SuiteResult) -> list[str]:
    findings = [found for found in result.findings if result.gates(found.case_id)]
    waiting = [found for found in findings if _waits(result, found)]
    judged = {found.case_id for found in findings}
    if not judged or {found.case_id for found in waiting} != judged:
        return []
    later = dict.fromkeys(found.metric for found in waiting)
    gated = dict.fromkeys(found.metric for found in findings if found.metric not in later)
    is_first = not any(map(is_waiting, waiting))
    what = f"--ddp-strict: this {'first ' if is_first else ''}session gates {_titles(gated)}"
    exact = [metric for metric in later if metric in EXACT]
    vague = [metric for metric in later if metric not in EXACT]
    until = f"only a large slow-down fails until {LEAST_SESSIONS} sessions are stored"
    if not is_first:
        return [f"{what}; in {_titles(vague)}, {until}"]
    tomorrow = f"the next one gates {_titles(exact)} as well" if exact else "from the next one on"
    return [f"{what}; {tomorrow}, and in {_titles(vague)}, {until}"]


def _waits(result: SuiteResult, finding: Finding) -> bool:
    is_first = finding.verdict.outcome is Outcome.NO_BASELINE and result.is_resolved(finding)
    return is_waiting(finding) or is_first


def _titles(metrics: Iterable[str]) -> str:
    return ", ".join(map(metric_title, metrics)) or "nothing"
