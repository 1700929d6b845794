"""The level of a launch: what its step costs when nothing disturbs it."""

from __future__ import annotations

from collections.abc import Sequence

FASTEST_OF = 10  # steps: the level is the expected fastest of so many
_FEWEST = 5  # clean steps that count alone


def launch_level(step_s: Sequence[float], disturbed: Sequence[bool] | None = None) -> float:
    """Return the expected fastest of `FASTEST_OF` steps that are drawn at random, in seconds.

    ``step_s`` has the seconds of the timed steps of one rank, or of the group.
    ``disturbed`` has one bool for each step, where a witness was read; such steps are left out,
    unless fewer than five others remain.

    What neighbours do to a step only makes it longer, so fast steps are the more repeatable ones. A
    minimum would fall with the number of steps. The expected minimum of a fixed number does not: it
    is the U-statistic Σ x₍ᵢ₎ C(n−i, m−1) ÷ C(n, m) with x₍₁₎ ≤ x₍₂₎ ≤ … (Hoeffding, "A class of
    statistics with asymptotically normal distribution", Ann. Math. Stat. 19, 1948). With fewer
    steps than `FASTEST_OF`, it is their minimum.

    Raises ValueError if there is no step, or if the lengths differ.
    """
    witnesses = 0 if disturbed is None else len(disturbed)
    if len(step_s) == 0 or witnesses not in (0, len(step_s)):
        raise ValueError(f"{len(step_s)} steps, {witnesses} witnesses")
    ordered = sorted(clean_steps(step_s, disturbed))
    drawn = min(FASTEST_OF, len(ordered))
    # The chance that no drawn step is among the fastest ones so far, updated from step to step.
    level, chance = 0.0, 1.0
    for rank, seconds in enumerate(ordered):
        share = drawn / (len(ordered) - rank)
        level += chance * share * seconds
        if share >= 1:
            break
        chance *= 1 - share
    return level


def clean_steps(
    step_s: Sequence[float], disturbed: Sequence[bool] | None = None
) -> Sequence[float]:
    """Return the steps that were not disturbed; all of them if under five were not."""
    if disturbed is None or len(disturbed) == 0:
        return step_s
    clean = [seconds for seconds, was in zip(step_s, disturbed, strict=True) if not was]
    return clean if len(clean) >= _FEWEST else step_s
