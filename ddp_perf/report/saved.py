"""Sentences on what ``--save-baseline`` stored, and on what it refused to store."""

from __future__ import annotations

from ddp_perf.baselines.save import Refused, Saved, SaveMode
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import STRUCTURE, metric_title
from ddp_perf.session.result import SuiteResult

_HOW: dict[SaveMode, str] = {
    "missing": "stored in",
    "append": "appended to",
    "accept": "accepted as the new level in",
}


def saved_text(saved: Saved) -> str:
    """Return where and how a case was stored."""
    titles: dict[str, list[str]] = {}  # by reason
    for metric, why in saved.without.items():
        titles.setdefault(why, []).append(metric_title(metric))
    without = [f", without {', '.join(found)}: {why}" for why, found in titles.items()]
    text = f"{_HOW[saved.mode]} {saved.path}"
    if saved.beside is not None:
        began = saved.beside[:16].replace("T", " ")
        text += f"; it counts as one with the session of {began} UTC, less than 12 hours before"
    return f"{text}{''.join(without)}"


def refused_text(refused: Refused) -> str:
    """Return why a case was not stored."""
    return f"not stored: {refused.reason}"


def resolved_text(result: SuiteResult, finding: Finding) -> str:
    """Return where and how the figure of a settled finding was stored."""
    file = result.saved_structures.get(finding.case_id)
    if finding.metric == STRUCTURE and file is not None:
        return f"stored in {file}"
    return saved_text(result.saved[finding.case_id])


def saving_notes(result: SuiteResult) -> dict[str, str]:
    """Return one sentence for each case that was to be stored, by case id."""
    stored = {case_id: saved_text(saved) for case_id, saved in result.saved.items()}
    refused = {case_id: refused_text(found) for case_id, found in result.not_saved.items()}
    notes = {**stored, **refused}
    for case_id, file in result.saved_structures.items():
        notes[case_id] += f"; the structure is stored in {file}"
    return notes
