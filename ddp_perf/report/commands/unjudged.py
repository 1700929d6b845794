"""The figures and cases that a session does not gate: they have no verdict, wait, or rotate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddp_perf.core.baseline import LEAST_SESSIONS
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import EXACT, metric_title
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.model import Table
from ddp_perf.render.terminal import Block
from ddp_perf.render.units import short_names
from ddp_perf.report.case_text import script_notes, step_line
from ddp_perf.report.columns import CERTAINTY, JUDGED, suite_figures
from ddp_perf.report.figures import MEANINGS, SHOWN, shown_step, term_values
from ddp_perf.report.rows import case_rows
from ddp_perf.report.step_terms import advice_lines, not_shown, term_parts
from ddp_perf.report.suite_notes import headline
from ddp_perf.session.figures import case_figures
from ddp_perf.session.gate.disturbance import find_disturbance
from ddp_perf.session.result import SuiteResult, is_never_measured, is_waiting

# The figures of a suite that was not judged: its table, the terms of its steps, and advice.


_SMALL = 0.05  # of a step: not named among its largest terms
_MOST_TERMS = 3
# A script's further steps after the timed ones are observed. Without them there is no advice.
_NO_TERMS = (
    "it was over before further steps could show what a step is made of; let it train longer"
)
_OTHER_STEPS = "no terms, as stated above"


def unjudged_parts(result: SuiteResult) -> Iterator[Block]:
    """Yield the figures of each finished case, what its step is made of, and advice on it."""
    yield from (headline(result), _figures(result), *term_parts(result), "", *_paragraphs(result))


def _figures(result: SuiteResult) -> Table:
    """Return the table of the finished cases, without the verdicts that they do not have."""
    rows = [row for row in case_rows(result) if result.measurements[row.case].is_complete]
    table = suite_figures(rows)
    shown = [at for at, column in enumerate(table.columns) if column not in (*JUDGED, *CERTAINTY)]
    return table.of_columns(shown)


def _paragraphs(result: SuiteResult) -> Iterator[str]:
    """Yield the largest terms of each case with its advice, and what a reader must know of it."""
    names = short_names(result.measurements)
    for case_id, name in names.items():
        if not result.measurements[case_id].is_complete:
            continue
        without = _NO_TERMS if not_shown(result, case_id) is None else _OTHER_STEPS
        yield f"{name}: {_largest_terms(result, case_id) or without}"
        yield from advice_lines(result, case_id)
        if (disturbance := find_disturbance(case_id, result.measurements)) is not None:
            yield f"- its times mean little: {disturbance}"
    ends = filter(None, map(step_line, result.measurements.values()))
    yield from (f"a step ends at {end}" for end in dict.fromkeys(ends))
    yield from script_notes(result, names)


def _largest_terms(result: SuiteResult, case_id: str) -> str | None:
    """Return the terms that cost most, with the meaning of the first; None without a probe."""
    figures = case_figures(result, case_id)
    step = shown_step(result.summaries[case_id], figures.step_s) if figures is not None else None
    if step is None or figures is None:
        return None
    values = term_values(step, figures.step_s)
    seconds = {name: value for name in SHOWN if (value := values[name]) is not None}
    whole = max(figures.step_s, step.explained_s)  # steps of the terms may be a little longer
    ordered = sorted(seconds, key=lambda name: seconds[name], reverse=True)[:_MOST_TERMS]
    shares = [
        f"{name} {seconds[name] / whole:.0%}"
        for name in ordered
        if name == ordered[0] or seconds[name] > _SMALL * whole
    ]
    return f"of a step, {', '.join(shares)} ({ordered[0]}: {MEANINGS[ordered[0]]})"


# The lines on what a session does not gate: what waits, and what is never measured.


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
