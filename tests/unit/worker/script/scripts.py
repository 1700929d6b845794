"""A script on one rank, in the test's own process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import msgspec
import torch.distributed as dist

from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.suite import ScriptSuite
from ddp_perf.core.case import Case
from ddp_perf.worker.report import Heartbeats
from ddp_perf.worker.script.steps import ScriptSteps
from ddp_perf.worker.steps.protocol import StepPlan


class Ended(BaseException):
    """The end of a rank in the middle of its script, whatever the script catches."""


def make_script_case(**suite: Any) -> Case:
    """Return the case of train.py on one rank."""
    fields: dict[str, Any] = {"suite": "s", "tier": "cpu", "script": "train.py"}
    fields |= {"world_sizes": [1], "batch_sizes": [4], "steps": 8, "warmup": 2, "args": []}
    (case,) = cases_of(Variant(suite=msgspec.convert({**fields, **suite}, ScriptSuite)))
    return case


class Run:
    """A run of a script, whose plan asks for ``count`` steps after the first one."""

    def __init__(self, count: int = 3, *, needed: int = 0, **suite: Any) -> None:
        self.count = count
        self.heartbeats = Heartbeats(1)
        self.steps: ScriptSteps[int] = ScriptSteps(
            make_script_case(**suite), 0, self.heartbeats, needed=needed
        )

    def run(self, script: Callable[[], None], plan: StepPlan[int] | None = None) -> int:
        """Return what the plan returns, or raise its error, as the rank would report it."""
        work: list[Callable[[], int]] = []

        def end(result: Callable[[], int]) -> NoReturn:
            work.append(result)
            raise Ended

        with destroyed_group():
            try:
                return self.steps.run(self._counted() if plan is None else plan, script, end)
            except Ended:
                return work[0]()

    def _counted(self) -> StepPlan[int]:
        for _ in range(self.count):
            yield
        return self.steps.done


# Groups live on: a model of DDP that is released after its group would end it, and torch then joins
# threads that may wait for the GIL, which it holds.
_ended: list[dist.ProcessGroup] = []


@contextlib.contextmanager
def destroyed_group() -> Iterator[None]:
    """Destroy the process group that the ``with`` block made, if any."""
    try:
        yield
    finally:
        if dist.is_initialized():
            assert dist.group.WORLD is not None
            _ended.append(dist.group.WORLD)
            dist.destroy_process_group()
