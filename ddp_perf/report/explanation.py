"""Why a step got longer, in lines."""

from __future__ import annotations

from ddp_perf.core.explanation import Cause, Explanation


def explanation_lines(explanation: Explanation) -> list[str]:
    """The causes, one a line, the largest first."""
    change = f"{explanation.step_change_s * 1e3:+.2f} ms a step"
    if not explanation.causes:
        looked = f"in the {explanation.launches} launches looked into"
        return [f"why: not told ({change} {looked}): no term of the step certainly got longer"]
    return [f"why ({change}):", *(f"  {cause_line(cause)}" for cause in explanation.causes)]


def cause_line(cause: Cause) -> str:
    """By how much, how large a part of it, and what shows it."""
    return (
        f"{cause.kind} {cause.change_s * 1e3:+.2f} ms ({cause.share:.0%}):"
        f" {'; '.join(cause.evidence)}"
    )
