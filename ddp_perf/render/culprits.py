"""A culprit in one line."""

from __future__ import annotations

from ddp_perf.core.culprit import Culprit
from ddp_perf.render.units import percent_change

_SHORT = 12  # digits of a commit, for people


def culprit_text(culprit: Culprit) -> str:
    """Write a culprit: ``commit 1a2b3c4d5e6f "Fuse the loss" by A (98 %): +12.0 % (10.1 to …)``."""
    if culprit.ratio is None or culprit.interval is None:
        return f"{_named(culprit)}: {culprit.why}"
    low, high = (100 * (end - 1) for end in culprit.interval)
    interval = f"{low:.1f} to {high:.1f} %"
    return (
        f"{_named(culprit)} ({_chance(culprit.probability)}): {percent_change(culprit.ratio)}"
        f" ({interval})"
    )


def _named(culprit: Culprit) -> str:
    if culprit.kind != "commit":
        return f"{culprit.kind} {culprit.name}"
    return f'commit {culprit.name[:_SHORT]} "{culprit.title}" by {culprit.author}'


def _chance(probability: float) -> str:
    """Write a probability. Launches are never certain, whatever the rounding."""
    return "> 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"
