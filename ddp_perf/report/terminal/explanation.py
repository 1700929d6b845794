"""The explanation of a longer step, as lines of text."""

from __future__ import annotations

from ddp_perf.core.explanation import Cause, Delta, Explanation
from ddp_perf.render.units import change_text, milliseconds

_SHOWN = 0.1  # smaller terms, as a share of the step's change, are left out
_MOST = 4  # terms shown


def explanation_lines(explanation: Explanation) -> list[str]:
    """Return the causes, one in a line, the largest first; then the terms that changed."""
    change = f"{explanation.step_change_s * 1e3:+.2f} ms a step"
    if explanation.step_change_s > 0:
        head = f"why ({change}):"
    else:
        head = f"why: unknown: the {explanation.launches} probed launches were not slower"
        head += f" ({change})"
    return [
        head,
        *(f"  {cause_line(cause)}" for cause in explanation.causes),
        *_changed(explanation),
    ]


def cause_line(cause: Cause) -> str:
    """Return the size of a cause, its share of the change, and its evidence."""
    return (
        f"{'likely ' if cause.likely else ''}{cause.kind} {cause.change_s * 1e3:+.2f} ms"
        f" ({_share(cause)}): {'; '.join(cause.evidence)}"
    )


def _share(cause: Cause) -> str:
    """Return the share of the change. A cause can be larger than the change, if terms shrank."""
    shown = f"{cause.share:.0%}"
    return shown if cause.share < 1.005 else "more than the whole change: other terms shrank"


def _changed(explanation: Explanation) -> list[str]:
    least = _SHOWN * abs(explanation.step_change_s)
    changed = [term for term in explanation.terms if abs(term.change) >= least]
    changed.sort(key=lambda term: abs(term.change), reverse=True)
    shown = ", ".join(map(_term, changed[:_MOST]))
    return [f"  terms that changed, ms: {shown}"] if changed else []


def _term(term: Delta) -> str:
    change = change_text(term.name, milliseconds(term.before), milliseconds(term.after))
    return f"{change} (uncertainty ± {milliseconds(term.uncertainty)})"
