"""The terms of a step as all reports show them: one name for each, in the order of a step."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.decomposition import TERMS, Decomposition
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.stats.step_decomposition import typical

REST = "rest"
# In words that need no other page. docs/explain.md states how each is measured.
MEANINGS = {
    "data": "the wait for the batch",
    "forward": "the forward pass, with the loss",
    "backward": "the backward pass, as long as it takes without communication beside it",
    "interference": "how much longer the backward takes because communication runs beside it",
    "optimizer": "the optimizer, with clearing the gradients",
    "idle": "the rank had no core, or slept (CPU tier only)",
    "imbalance": "how much longer the slowest rank works than a typical one",
    "exposed": "the wait for communication that nothing hides",
    REST: "the timed step beyond all terms, which are measured on later steps",
}
SHOWN = (*TERMS, REST)
HIDDEN = "the share of the communication that costs the step nothing"
_LONGEST = 1.1  # timed steps: terms of longer ones are of other steps, such as on a busier machine
_OF_COMMUNICATION = ("interference", "exposed")


def shown_step(rows: Sequence[LaunchSummary], step_s: float) -> Decomposition | None:
    """Return the typical step of the launches whose probed steps are like a timed one.

    The terms are measured on later steps than those that are timed. Those of steps that took longer
    by more than a tenth do not describe the timed ones. None: no launch has such terms.
    """
    probed = [row.decomposition for row in rows if row.decomposition is not None]
    return typical([one for one in probed if one.step_s <= _LONGEST * step_s])


def term_values(step: Decomposition, step_s: float) -> dict[str, float | None]:
    """Return the seconds of each name in SHOWN for a timed step. None: the term was not seen.

    There is no rest if the terms add up to more than the timed step. Interference is never below 0:
    a backward that took longer without communication than with it shows none, and is as long as the
    one with it.
    """
    rest = step_s - step.explained_s
    values: dict[str, float | None] = {**step.terms, REST: rest if rest >= 0 else None}
    shorter = min(0.0, step.terms["interference"])
    values["interference"] = step.terms["interference"] - shorter
    values["backward"] = step.terms["backward"] + shorter
    if not step.sees_communication:
        values |= dict.fromkeys(_OF_COMMUNICATION)
    return values


def hidden_share(step: Decomposition) -> float | None:
    """Return the share of the communication that costs the step nothing.

    It is 0, and never less, if communication costs more beside computation than alone: the terms
    show what it costs. None: unknown, or there is no communication.
    """
    return None if step.hidden_share is None else max(0.0, step.hidden_share)
