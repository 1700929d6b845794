"""The steps of a script, seen through torch's hooks while the script itself is in control.

At the end of each step the script calls the hook, the hook resumes the plan of the measurement up
to the next step that it needs, and the script goes on. Nothing of the script is edited.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

import ddp_perf
from ddp_perf.core.case import Case
from ddp_perf.core.launch import ScriptFacts
from ddp_perf.core.script import BY_OPTIMIZER
from ddp_perf.core.strategy import Strategy
from ddp_perf.errors import ScriptError
from ddp_perf.worker.heartbeat import Phase
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.script.module import strategy_of, trained_module
from ddp_perf.worker.steps.plan import StepPlan, StepsEndedError

T = TypeVar("T")
_LIBRARIES = (
    *(f"{module.__path__[0]}{os.sep}" for module in (ddp_perf, torch)),
    f"{os.sep}site-packages{os.sep}",
    "<frozen ",
)


class ScriptSteps:
    """The steps of a script on one rank. The attributes are known from its first step on."""

    module: nn.Module
    strategy: Strategy

    def __init__(self, case: Case, context: RankContext) -> None:
        self.done = 0  # steps, with those that a GradScaler skipped
        self._case = case
        self._rank = context.rank
        self._heartbeats = context.heartbeats
        self._optimizer: Optimizer | None = None  # the first one that stepped
        self._steps_at = ""
        self._backwards = 0  # since the last step
        self._others: WeakSet[Optimizer] = WeakSet()  # that stepped beside the first one
        self._micro_steps: list[int] = []  # of each step since the last reading of the facts
        self._skipped = 0
        self._apart = False  # whether the ranks keep their gradients to themselves
        self._on_phase: Callable[[str], None] = _ignore
        self._on_loss: Callable[[torch.Tensor], None] = _ignore
        self._acts_before_batch: list[Callable[[], object]] = []  # injected
        self._acts_before_backward: list[Callable[[torch.Tensor], object]] = []
        self._in_data = False  # whether the time until the next forward is spent on the batch

    def run(
        self,
        plan: StepPlan[T],
        script: Callable[[], None],
        end: Callable[[Callable[[], T]], NoReturn],
    ) -> T:
        """Run the script until the plan is through, which begins after the script's first step.

        Then ``end`` is called in the middle of the script, with a function that returns what the
        plan returns, or raises its error. If the script is over before, return what the plan
        returns without further steps. Raises ScriptError if the plan needs more steps, and what
        the script raises.
        """
        self._advance = functools.partial(_advance, plan, end)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_patched(torch.autograd, "backward", self._around_backward))
            stack.enter_context(_patched(torch.amp.GradScaler, "step", self._around_scaler))
            if self._case.script is not None and self._case.script.steps_by != BY_OPTIMIZER:
                owner, name = _function(self._case.script.steps_by)
                stack.enter_context(_patched(owner, name, self._around_function))
            hook = register_optimizer_step_post_hook(self._after_optimizer)
            stack.callback(hook.remove)
            try:
                script()
            except SystemExit as error:
                return self._finish(plan, f"sys.exit({error.code!r})", cause=error)
            return self._finish(plan, "the end of the file", cause=None)

    def beat(self) -> None:
        """Report to the supervisor that this rank makes progress."""
        self._heartbeats.beat(self._rank)

    def enter(self, phase: Phase) -> None:
        """Report to the supervisor that a phase begins."""
        self._heartbeats.enter(self._rank, phase)

    def facts(self) -> ScriptFacts:
        """Return the facts about the steps since the last call, or about all of them."""
        seen = self._micro_steps or [0]
        facts = ScriptFacts(
            steps_at=self._steps_at,
            micro_steps=(min(seen), max(seen)),
            optimizers=1 + len(self._others),
            skipped=self._skipped,
        )
        self._micro_steps, self._skipped = [], 0
        return facts

    @contextlib.contextmanager
    def observe(
        self,
        on_phase: Callable[[str], None],
        on_loss: Callable[[torch.Tensor], None] | None = None,
    ) -> Iterator[None]:
        """Observe the phases of the steps: see ``Training.observe``.

        A forward is observed at the trained module. What is between two of its micro-steps counts
        as data, and what is between the last backward and the end of the step as optimizer.
        """
        before = self._on_phase, self._on_loss
        self._on_phase, self._on_loss = on_phase, on_loss or _ignore
        self._in_data = True
        hook = self.module.register_forward_pre_hook(self._before_forward, prepend=True)
        try:
            yield
        finally:
            hook.remove()
            self._on_phase, self._on_loss = before

    def settle(self, steps: int) -> StepPlan[None]:
        """Go on until at least ``steps`` are done: see ``Training.settle``. Each is a full one."""
        while self.done < steps:
            yield

    @contextlib.contextmanager
    def unsynchronised(self) -> Iterator[None]:
        """Let each rank use its own gradients: see ``Training.unsynchronised``."""
        assert isinstance(self.module, DistributedDataParallel)
        self._apart = True
        try:
            yield
        finally:
            self._apart = False
            self.module.require_backward_grad_sync = True

    def before_batch(self, act: Callable[[], object]) -> None:
        """Call ``act`` at the begin of each later step."""
        self._acts_before_batch.append(act)

    def before_backward(self, act: Callable[[torch.Tensor], object]) -> None:
        """Call ``act(loss)`` once in each later step, before its first backward."""
        self._acts_before_backward.append(act)

    def _before_forward(self, module: nn.Module, arguments: Any) -> None:
        if self._apart and isinstance(self.module, DistributedDataParallel):
            self.module.require_backward_grad_sync = False
        if self._in_data:
            self._in_data = False
            self._on_phase("data")

    def _around_backward(self, backward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._backwards == 0:
            self.beat()
        self._backwards += 1
        first = args[0] if args else kwargs.get("tensors")
        if isinstance(first, torch.Tensor):
            self._on_loss(first)
            for act in self._acts_before_backward if self._backwards == 1 else ():
                act(first)
        self._on_phase("forward")
        result = backward(*args, **kwargs)
        self._on_phase("backward")
        self._in_data = True
        return result

    def _around_scaler(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Take a step that the scaler skips as a step: its forward and backward were run."""
        done = self.done
        result = step(*args, **kwargs)
        optimizer = args[1] if len(args) > 1 else kwargs.get("optimizer")
        by_optimizer = self._case.script is None or self._case.script.steps_by == BY_OPTIMIZER
        if by_optimizer and self.done == done and optimizer in (self._optimizer, None):
            self._skipped += 1
            self._end_step()
        return result

    def _around_function(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if self._optimizer is not None:
            self._end_step()
        return result

    def _after_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._optimizer is None:
            self._optimizer = optimizer
        elif optimizer is not self._optimizer:
            self._others.add(optimizer)
            return
        if self._case.script is None or self._case.script.steps_by == BY_OPTIMIZER:
            self._end_step()

    def _end_step(self) -> None:
        if not self._backwards:
            self.beat()  # BEATS_PER_STEP
        self.done += 1
        self._micro_steps.append(self._backwards)
        self._backwards = 0
        self.beat()
        self._on_phase("optimizer")
        self._in_data = True
        if self.done == 1:
            self._begin()
        self._advance()
        for late in self._acts_before_batch:
            late()

    def _begin(self) -> None:
        """Check the group, and find the module. Raises ScriptError."""
        assert self._optimizer is not None  # it has just stepped
        self._steps_at = _line_of_the_script()
        ranks = self._case.world_size
        if not dist.is_initialized():
            if ranks > 1:
                raise ScriptError(
                    f"{self._name} has no process group at its first optimizer step"
                    f" ({self._steps_at}), so its {ranks} ranks train apart; let it initialise"
                    " torch.distributed, or keep world_sizes: [1]"
                )
            # What measures calls collectives, which need a group.
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        elif dist.get_world_size() != ranks:
            raise ScriptError(
                f"{self._name} has a process group of {dist.get_world_size()}, not of {ranks}"
                " ranks; let it use the variables that torchrun sets"
            )
        self.module = trained_module(self._optimizer)
        self.strategy = strategy_of(self.module, ranks)

    def _finish(self, plan: StepPlan[T], how: str, *, cause: BaseException | None) -> T:
        """Return what the plan returns without further steps. Raises ScriptError if it cannot."""
        if self.done == 0:
            raise ScriptError(
                f"{self._name} ended ({how}) without a step of an optimizer in this process; if it"
                " steps otherwise, name the function: steps_by: module:function"
            ) from cause
        try:
            while True:
                plan.throw(StepsEndedError())
        except StopIteration as stop:
            result: T = stop.value
            return result
        except StepsEndedError:
            raise ScriptError(
                f"{self._name} ended ({how}) after {self.done} steps ({self._steps_at}), but its"
                f" measurement needs more: {self._case.schedule.steps} timed ones, and some before"
                " and after them; let it train longer, or take fewer steps"
            ) from cause

    @property
    def _name(self) -> str:
        return self._case.workload


def _advance(plan: StepPlan[T], end: Callable[[Callable[[], T]], NoReturn]) -> None:
    """Run the plan up to its next step; if it is through, end the rank here."""
    try:
        next(plan)
    except StopIteration as stop:
        result: T = stop.value
        end(lambda: result)
    except BaseException as error:  # noqa: BLE001 – the script must not catch it; the rank reports it
        failure = error
        end(lambda: _raise(failure))


def _raise(error: BaseException) -> NoReturn:
    raise error


def _line_of_the_script() -> str:
    """Return the innermost line on the stack that is of no library: ``train.py:57``."""
    frame = sys._getframe()
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if not any(place in file for place in _LIBRARIES):
            return f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return "a library"


def _function(target: str) -> tuple[Any, str]:
    """Return the owner and the name of ``module:function``, which may be a method.

    Raises ScriptError if there is none.
    """
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        getattr(owner, name)
    except (ImportError, AttributeError) as error:
        raise ScriptError(f"steps_by: {target} does not exist: {error}") from None
    return owner, name


@contextlib.contextmanager
def _patched(owner: Any, name: str, around: Callable[..., Any]) -> Iterator[None]:
    """Call ``around(original, …)`` in place of ``owner.name(…)`` in the ``with`` block."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapper)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _ignore(observed: object) -> None:
    """Ignore a phase or a loss: only steps after the timed ones are observed."""
