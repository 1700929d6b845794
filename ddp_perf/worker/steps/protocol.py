"""The interface of steps to the timed loop, their plans, and the seeds of random numbers."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import msgspec
import torch
from torch import nn

from ddp_perf.core.decomposition import RankProbe
from ddp_perf.core.launch import ScriptFacts, Structure, Unit
from ddp_perf.core.strategy import Strategy
from ddp_perf.worker.report import Heartbeats, Phase

# Plans of steps: generators that yield once for each step that they need.
#
# What measures steps does not call them, so it can also measure a script, which calls its own.


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


# The interface of steps to the timed loop: training iterations, or calls of a collective.


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about steps beside their time; the fields are those of ``RankResult``."""

    digest: int | None = None
    structure: Structure | None = None
    probe: RankProbe | None = None
    ddp_logging: dict[str, int | float | str] = {}
    flops: int | None = None
    flops_by_format: dict[str, int] = {}
    losses: dict[str, float | None] = {}
    loss_unit: float | None = None
    one_batch: bool = True
    script: ScriptFacts | None = None


class Steps(Protocol):
    """The steps of a case on one rank. All ranks run equally many.

    In each step the rank beats BEATS_PER_STEP times.
    """

    @property
    def collects_garbage(self) -> bool:
        """True if garbage is collected in timed steps; otherwise it is before and after them."""
        ...

    @property
    def unit(self) -> Unit:
        """The unit of throughput."""
        ...

    def beat(self) -> None:
        """Report to the supervisor that this rank makes progress."""
        ...

    def enter(self, phase: Phase) -> None:
        """Report to the supervisor that a phase begins."""
        ...


class Training(Steps, Protocol):
    """Steps that train a model, as the examination after the timed steps needs them."""

    @property
    def module(self) -> nn.Module:
        """The trained module, as its strategy wrapped it."""
        ...

    @property
    def strategy(self) -> Strategy:
        """The strategy by which the ranks train together."""
        ...

    def observe(
        self,
        on_phase: Callable[[str], None],
        on_loss: Callable[[torch.Tensor], None] | None = None,
    ) -> AbstractContextManager[None]:
        """Call ``on_phase`` at the end of each phase of the steps inside the ``with`` block.

        Its argument is the phase: "optimizer" (zeroed gradients count as it, too), "data",
        "forward" or "backward". ``on_loss`` gets the loss of each micro-step before its backward.
        """
        ...

    def settle(self, steps: int) -> StepPlan[None]:
        """Go on until at least ``steps`` are done in all and the next one is a full step."""
        ...

    def unsynchronised(self) -> AbstractContextManager[None]:
        """Let each rank use its own gradients in the steps inside the ``with`` block.

        The parameters differ by rank from then on. Only DDP can do it.
        """
        ...


# What the steps of a case report: a rank's progress, and the phases of an observed step.


class ReportingSteps:
    """Steps that report the progress of their rank to the supervisor."""

    def __init__(self, rank: int, heartbeats: Heartbeats) -> None:
        self.rank = rank
        self._heartbeats = heartbeats

    def beat(self) -> None:
        """Report that this rank makes progress."""
        self._heartbeats.beat(self.rank)

    def enter(self, phase: Phase) -> None:
        """Report that a phase begins."""
        self._heartbeats.enter(self.rank, phase)


class ObservedSteps(ReportingSteps):
    """Steps whose phases and losses can be observed; nobody observes timed ones."""

    def __init__(self, rank: int, heartbeats: Heartbeats) -> None:
        super().__init__(rank, heartbeats)
        self._on_phase: Callable[[str], None] = _ignore
        self._on_loss: Callable[[torch.Tensor], None] = _ignore

    @contextlib.contextmanager
    def observe(
        self,
        on_phase: Callable[[str], None],
        on_loss: Callable[[torch.Tensor], None] | None = None,
    ) -> Iterator[None]:
        """Observe the phases of the steps: see ``Training.observe``."""
        before = self._on_phase, self._on_loss
        self._on_phase, self._on_loss = on_phase, on_loss or _ignore
        try:
            yield
        finally:
            self._on_phase, self._on_loss = before


def _ignore(observed: object) -> None:
    """Ignore a phase or a loss."""


# The seeds of a rank's generators of random numbers.


_SEED = 0  # the same on every rank: the plain module and DDP start from the same parameters


def seed_all() -> None:
    """Set the seed of every generator that the user's code may use.

    The ranks of a session are forks of one server, and would share its state. Another session has
    another server, and would train on other data.
    """
    torch.manual_seed(_SEED)
    random.seed(_SEED)
    with contextlib.suppress(ModuleNotFoundError):  # torch runs without it
        import numpy

        numpy.random.seed(_SEED)  # the generator that most code uses
