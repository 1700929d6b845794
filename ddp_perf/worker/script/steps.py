"""The steps of a script, seen through torch's hooks while the script itself is in control.

At the end of each step the script calls the hook, the hook resumes the plan of the measurement up
to the next step that it needs, and the script goes on. Nothing of the script is edited.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Generic, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddp_perf.core.case import Case
from ddp_perf.core.launch import ScriptFacts, Unit
from ddp_perf.core.script import BY_OPTIMIZER
from ddp_perf.core.strategy import Strategy
from ddp_perf.errors import ScriptError
from ddp_perf.worker.heartbeat import Heartbeats, Phase
from ddp_perf.worker.script import refusals
from ddp_perf.worker.script.ends import await_other_ends
from ddp_perf.worker.script.forks import ForkMark
from ddp_perf.worker.script.hooks import TorchEvents
from ddp_perf.worker.script.lines import line_here, line_in
from ddp_perf.worker.script.module import gpu_of, replicas, strategy_of, trained_module
from ddp_perf.worker.script.patching import function_of, patched
from ddp_perf.worker.script.settings import own_settings
from ddp_perf.worker.steps.plan import StepPlan, StepsEndedError

T = TypeVar("T")
End = Callable[[Callable[[], T]], NoReturn]


class ScriptSteps(Generic[T]):
    """The steps of a script on one rank, and the plan that measures them.

    ``plan`` begins after the first step, and needs ``needed`` steps in all; ``short`` returns the
    error of fewer ones. When the plan is through, ``end`` is called in the middle of the script,
    with a function that returns what the plan returns, or raises its error. ``module`` and
    ``strategy`` are known once the plan has begun.
    """

    # As without us: a script that leaves tensors in cycles of references runs slower otherwise.
    collects_garbage = True
    unit = Unit()

    def __init__(
        self,
        case: Case,
        rank: int,
        heartbeats: Heartbeats,
        *,
        needed: int,
        short: Callable[[Case, str, int, str, int], ScriptError] = refusals.too_few_steps,
    ) -> None:
        assert case.script is not None  # that is what is measured
        self.done = 0  # steps, with those that a GradScaler skipped
        self._case = case
        self._rank = rank
        self._heartbeats = heartbeats
        # Makes the GPU that is trained on the current one, as soon as that is known.
        self.own_device: AbstractContextManager[object] = contextlib.nullcontext()
        self._needed, self._short = needed, short
        self._by_optimizer = case.script.steps_by == BY_OPTIMIZER
        self._fork_mark = ForkMark()  # set in a worker of a DataLoader, for example
        self._first: Callable[[], Optimizer | None] = _none  # the first one that stepped
        # Those that stepped, in this order. There may be one for each parameter.
        self._optimizers: weakref.WeakKeyDictionary[Optimizer, None] = weakref.WeakKeyDictionary()
        self._steps_at = ""
        self._stepped_in_backward = ""  # the line; empty: not since the last step
        self._backwards = 0  # since the last step
        self._micro_steps: list[int] = []  # of each step since the last reading of the facts
        self._skipped = 0
        self._on_phase: Callable[[str], None] = _ignore
        self._on_loss: Callable[[torch.Tensor], None] = _ignore
        self._acts_before_batch: list[Callable[[], object]] = []  # injected
        self._acts_before_backward: list[Callable[[torch.Tensor], object]] = []
        self._in_data = False  # whether the time until the next forward is spent on the batch

    def run(self, plan: StepPlan[T], script: Callable[[], None], end: End[T]) -> T:
        """Run the script until the plan is through.

        If the script is over before, return what the plan returns without further steps. Raises
        ScriptError if the plan needs more steps, and what the script raises.
        """
        self._plan, self._end = plan, end
        with TorchEvents(self).observed(), self._function_observed():
            try:
                script()
            except SystemExit as error:
                return self._finish_at(error)
            except Exception as error:  # noqa: BLE001 – it is raised unless the times are there
                return self._finish_after(error, error)
            return self._finish("at the end of the file")

    @functools.cached_property
    def module(self) -> nn.Module:
        """The trained module. It is looked for once all optimizers have stepped."""
        return trained_module(self._alive())

    @functools.cached_property
    def strategy(self) -> Strategy:
        return strategy_of(self.module, self._case.world_size)

    def used_gpu(self) -> torch.device:
        """Return the GPU that is trained on. After its next step the plan has it as its device."""
        device = gpu_of(self._first())
        self.own_device = torch.cuda.device(device)
        return device

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
            optimizers=len(self._alive()),
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
        hook = self.module.register_forward_pre_hook(_Hook(self._before_forward), prepend=True)
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
        """Let each rank use its own gradients: see ``Training.unsynchronised``.

        A script may have several modules in DDP, and accumulate gradients by ``no_sync`` itself.
        """
        with contextlib.ExitStack() as stack:
            for module in replicas():
                hook = module.register_forward_pre_hook(_keep_gradients, prepend=True)
                stack.callback(setattr, module, "require_backward_grad_sync", True)
                stack.callback(hook.remove)
                module.require_backward_grad_sync = False  # a compiled forward may skip the hook
            yield

    def act_before_batch(self, act: Callable[[], object]) -> None:
        """Call ``act`` at the begin of each later step."""
        self._acts_before_batch.append(act)

    def act_before_backward(self, act: Callable[[torch.Tensor], object]) -> None:
        """Call ``act(loss)`` once in each later step, before its first backward."""
        self._acts_before_backward.append(act)

    def before_backward(self, loss: torch.Tensor | None) -> None:
        if self._stepped_in_backward and self._by_optimizer and not self._fork_mark.is_fork:
            self._refuse(refusals.steps_in_backward(self._case, self._stepped_in_backward))
        if self._backwards == 0:
            self.beat()
        self._backwards += 1
        if loss is not None:
            self._on_loss(loss)
            for act in self._acts_before_backward if self._backwards == 1 else ():
                act(loss)
        self._on_phase("forward")

    def after_backward(self) -> None:
        self._on_phase("backward")
        self._in_data = True

    def after_optimizer(self, optimizer: Optimizer, *, in_backward: bool) -> None:
        if self._fork_mark.is_fork:
            self._refuse(refusals.own_ranks(self._case, line_here()))
        if optimizer is not self._first():
            self._note(optimizer)
        if in_backward:
            self._stepped_in_backward = self._stepped_in_backward or line_here()
        elif not self._by_optimizer:
            return
        elif self._is_first(optimizer):
            self._end_step()
        else:
            self._on_phase("optimizer")

    def after_skip(self, optimizer: Optimizer) -> None:
        """Take a step that the scaler skips as a step: its forward and backward were run."""
        if self._by_optimizer and self._is_first(optimizer) and not self._fork_mark.is_fork:
            self._note(optimizer)
            self._skipped += 1
            self._end_step()

    def before_end_of_group(self) -> None:
        """End the plan here, while its collectives have a group, unless the script has failed.

        Many scripts end their group in a ``finally`` clause.
        """
        error = sys.exc_info()[1]
        if self.done == 0 or self._fork_mark.is_fork or isinstance(error, Exception):
            return
        if isinstance(error, SystemExit):
            self._end(functools.partial(self._finish_at, error))
        self._end(functools.partial(self._finish, f"destroy_process_group at {line_here()}"))

    def before_own_ranks(self) -> None:
        if not self._fork_mark.is_fork:
            self._refuse(refusals.own_ranks(self._case, line_here()))

    @contextlib.contextmanager
    def _function_observed(self) -> Iterator[None]:
        """Observe the function that ends the steps, if an optimizer does not."""
        script = self._case.script
        if script is None or self._by_optimizer:
            yield
            return
        with patched(*function_of(script.steps_by, script.name), self._around_function):
            yield

    def _around_function(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not self._fork_mark.is_fork:
            self._end_step()
        return result

    def _before_forward(self) -> None:
        if self._in_data:
            self._in_data = False
            self._on_phase("data")

    def _alive(self) -> list[Optimizer]:
        return list(self._optimizers)

    def _note(self, optimizer: Optimizer) -> None:
        self._optimizers[optimizer] = None

    def _is_first(self, optimizer: Optimizer) -> bool:
        """Return whether it ends the steps. If the optimizer that did is gone, it replaces that."""
        if self._first() is None:
            self._first = weakref.ref(optimizer)
        return self._first() is optimizer

    def _end_step(self) -> None:
        if not self._backwards:
            self.beat()  # BEATS_PER_STEP
        self.done += 1
        self._micro_steps.append(self._backwards)
        self._backwards = 0
        self._stepped_in_backward = ""
        self.beat()
        self._on_phase("optimizer")
        self._in_data = True
        self._resume()
        for late in self._acts_before_batch:
            late()

    def _resume(self) -> None:
        """Run the plan up to its next step. The rank ends here if it is through, or fails."""
        work: Callable[[], T]
        try:
            if self.done == 1:
                self._steps_at = line_here()
                self._check_group()
            with own_settings(), self.own_device:
                next(self._plan)
        except StopIteration as stop:
            result: T = stop.value
            work = functools.partial(_return, result)
        except BaseException as error:  # noqa: BLE001 – the script must not catch it; the rank reports it
            work = functools.partial(_raise, error)
        else:
            return
        self._end(work)

    def _refuse(self, error: BaseException) -> NoReturn:
        """End the rank in the middle of the script, which must not catch the error."""
        self._end(functools.partial(_raise, error))

    def _check_group(self) -> None:
        """Raise ScriptError unless the script has a process group of all ranks."""
        ranks = self._case.world_size
        if dist.is_initialized():
            if dist.get_world_size() != ranks:
                raise refusals.other_group(self._case, dist.get_world_size())
        elif ranks > 1:
            raise refusals.no_group(self._case, self._steps_at)
        else:  # what measures calls collectives, which need a group
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def _finish_at(self, error: SystemExit) -> T:
        how = f"sys.exit({error.code!r}) at {line_in(error.__traceback__)}"
        if error.code not in (None, 0):
            return self._finish_after(error, refusals.failed_exit(self._case, how, self.done))
        return self._finish(how)

    def _finish(self, how: str) -> T:
        """Return what the plan returns without further steps. Raises ScriptError if it cannot."""
        case = self._case
        if self.done == 0:
            raise refusals.no_step(case, how)
        short = self._short(case, how, self.done, self._steps_at, self._needed)
        if self.done < self._needed:
            raise short
        if not dist.is_initialized():
            raise refusals.failed_exit(case, "an error, after which it ended its group", self.done)
        try:
            await_other_ends(case, self._rank, how, self.done)
        except AttributeError as error:  # this torch has no such store
            return self._finish_after(error, error)
        try:
            with own_settings(), self.own_device:
                while True:
                    self._plan.throw(StepsEndedError())
        except StopIteration as stop:
            result: T = stop.value
            return result
        except StepsEndedError:
            raise short from None

    def _finish_after(self, error: BaseException, described: Exception) -> T:
        """Return what the plan returns if the times are there; raise ``described`` otherwise."""
        try:
            with own_settings(), self.own_device:
                self._plan.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        except SystemExit:
            pass
        raise described


class _Hook:
    """A hook that calls ``act`` before a forward. In a copy of its module it does nothing."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __call__(self, module: nn.Module, arguments: Any) -> None:
        self._act()

    def __reduce__(self) -> tuple[type[_Hook], tuple[Callable[[], None]]]:
        return _Hook, (_do_nothing,)


def _do_nothing() -> None:
    """Ignore the forward of a copied module."""


def _keep_gradients(module: nn.Module, arguments: Any) -> None:
    assert isinstance(module, DistributedDataParallel)
    module.require_backward_grad_sync = False


def _none() -> None:
    """Return no optimizer: none has stepped."""


def _return(result: T) -> T:
    return result


def _raise(error: BaseException) -> NoReturn:
    raise error


def _ignore(observed: object) -> None:
    """Ignore a phase or a loss: only steps after the timed ones are observed."""
