"""Why a step got longer, in lines."""

from __future__ import annotations

from ddp_perf.core.explanation import Cause, Delta, Explanation

_SHOWN = 0.1  # of the step's change: lesser terms are left out,
_MOST = 4  # and of many the least


def explanation_lines(explanation: Explanation) -> list[str]:
    """The causes, one a line, the largest first; then the terms that moved."""
    change = f"{explanation.step_change_s * 1e3:+.2f} ms a step"
    if explanation.step_change_s > 0:
        head = f"why ({change}):"
    else:
        head = f"why: not told: the {explanation.launches} launches looked into were not slower"
        head += f" ({change})"
    return [head, *(f"  {cause_line(cause)}" for cause in explanation.causes), *_moved(explanation)]


def cause_line(cause: Cause) -> str:
    """By how much, how large a part of it, and what shows it."""
    return (
        f"{'likely ' if cause.likely else ''}{cause.kind} {cause.change_s * 1e3:+.2f} ms"
        f" ({cause.share:.0%}): {'; '.join(cause.evidence)}"
    )


def _moved(explanation: Explanation) -> list[str]:
    least = _SHOWN * abs(explanation.step_change_s)
    moved = [term for term in explanation.terms if abs(term.change) >= least]
    moved.sort(key=lambda term: abs(term.change), reverse=True)
    return [f"  terms that moved, ms: {', '.join(map(_term, moved[:_MOST]))}"] if moved else []


def _term(term: Delta) -> str:
    by_chance = f" (by chance ± {term.uncertainty * 1e3:.2f})" if term.uncertainty else ""
    return f"{term.name} {term.before * 1e3:.2f} → {term.after * 1e3:.2f}{by_chance}"
