"""Plans of steps: generators that yield once for each step that they need.

What measures steps does not call them, so it can also measure a script, which calls its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
StepPlan = Generator[None, None, T]  # the step that it asks for has run when the yield returns


class StepsEndedError(Exception):
    """The training is over, though a plan needs more steps. It is raised where the plan yields."""


def follow_plan(plan: StepPlan[T], step: Callable[[], None]) -> T:
    """Run ``step`` whenever the plan asks for one, and return what the plan returns.

    What a step raises is raised where the plan yields: the plan may do without that step.
    """
    failed: Exception | SystemExit | None = None
    with contextlib.closing(plan):
        while True:
            try:
                if failed is None:
                    next(plan)
                else:
                    plan.throw(failed)
            except StopIteration as end:
                result: T = end.value
                return result
            failed = None
            try:
                step()
            except (Exception, SystemExit) as error:  # noqa: BLE001 – the plan raises it
                failed = error
