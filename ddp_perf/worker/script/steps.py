"""The steps of a script by torch's hooks, its trained module and source lines, and its end."""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import CodeType, TracebackType
from typing import Any, Generic, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import ddp_perf
from ddp_perf.core.case import Case
from ddp_perf.core.launch import ScriptFacts, Unit
from ddp_perf.core.strategy import Strategy
from ddp_perf.core.subject import BY_OPTIMIZER
from ddp_perf.errors import ScriptError
from ddp_perf.torch_compat.internals import default_store
from ddp_perf.worker.report import Heartbeats
from ddp_perf.worker.script import refusals
from ddp_perf.worker.script.hooks import TorchEvents, function_of, patched
from ddp_perf.worker.script.refusals import ended_apart
from ddp_perf.worker.steps.protocol import ObservedSteps, StepPlan, StepsEndedError

# The end of a script on all ranks: further collectives need every rank, at the same step.


_SHARE = 0.5  # of the step's deadline, after which the supervisor would report a hang


def await_other_ends(case: Case, rank: int, how: str, done: int) -> None:
    """Wait until the script has ended on all ranks, each after ``done`` steps.

    The ranks meet in the store of the script's process group: a collective of a rank that trains
    on would be taken for its partner. Raises ScriptError if another rank
    trains on, or trained for another number of steps.
    """
    if case.run_ranks == 1:
        return
    store = default_store()
    keys = {other: f"ddp_perf/ended/{other}" for other in range(case.world_size)}
    store.set(keys[rank], str(done))
    patience = datetime.timedelta(seconds=_SHARE * case.schedule.step_deadline_s)
    try:
        store.wait(list(keys.values()), patience)
    except dist.DistStoreError:
        going = {other: None for other, key in keys.items() if not store.check([key])}
        raise ended_apart(case, how, done, going) from None
    steps = {other: int(store.get(key)) for other, key in keys.items()}
    others = {other: count for other, count in steps.items() if count != done}
    if others:
        raise ended_apart(case, how, done, others)


# The question whether a process is a fork, which each step of a script asks.


class ForkMark:
    """A mark that is set in each fork of the process that made it. ``os.getpid`` takes longer."""

    def __init__(self) -> None:
        self.is_fork = False
        os.register_at_fork(after_in_child=self._set)

    def _set(self) -> None:
        self.is_fork = True


# The line of a script, by which a user finds what is reported.


_LIBRARIES = (
    *(f"{module.__path__[0]}{os.sep}" for module in (ddp_perf, torch)),
    f"{os.sep}site-packages{os.sep}",
    f"{os.path.dirname(os.__file__)}{os.sep}",  # the standard library
    "<frozen ",
)


def line_here() -> str:
    """Return the innermost line on the stack that is of no library: ``train.py:57``."""
    return next(_lines(_on_stack()), "a library")


def line_in(traceback: TracebackType | None) -> str:
    """Return the innermost line of a traceback that is of no library."""
    return next(_lines(reversed(list(_in_traceback(traceback)))), "a library")


def _lines(places: Iterator[tuple[CodeType, int]]) -> Iterator[str]:
    for code, line in places:
        if not any(library in code.co_filename for library in _LIBRARIES):
            yield f"{os.path.basename(code.co_filename)}:{line}"


def _on_stack() -> Iterator[tuple[CodeType, int]]:
    frame = sys._getframe()
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]


def _in_traceback(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next


# The module that a script trains, found by the parameters of its optimizers.


def trained_module(optimizers: Sequence[Optimizer]) -> nn.Module:
    """Return the module that a step of the optimizers updates, as its strategy wrapped it.

    It is the smallest module with all parameters of the optimizers, or what wraps it in DDP. If no
    module has all of them, it is that of the first optimizer; if none has those either, a module
    made of these parameters. Without an optimizer it is the largest module, or what wraps one in
    DDP.
    """
    modules = list(_modules())
    for group in (optimizers, optimizers[:1]):
        wanted = {id(one) for one in _parameters(group)}
        holders = [
            module for module in modules if wanted <= {id(one) for one in module.parameters()}
        ]
        if holders:
            replicas = [one for one in holders if isinstance(one, DistributedDataParallel)]
            choose = min if wanted else max
            return choose(replicas or holders, key=lambda module: sum(1 for _ in module.modules()))
    return nn.ParameterList(_parameters(optimizers[:1]))


def gpu_of(optimizer: Optimizer | None) -> torch.device:
    """Return the GPU of an optimizer's parameters; if none is on a GPU, the current one."""
    parameters = [] if optimizer is None else _parameters([optimizer])
    used = (one.device for one in parameters if one.is_cuda)
    return next(used, None) or torch.device("cuda", torch.cuda.current_device())


def replicas() -> list[DistributedDataParallel]:
    """Return all modules of this process that DDP wraps."""
    return [module for module in _modules() if isinstance(module, DistributedDataParallel)]


def _parameters(optimizers: Sequence[Optimizer]) -> list[nn.Parameter]:
    return [
        one
        for optimizer in optimizers
        for group in optimizer.param_groups
        for one in group["params"]
    ]


def _modules() -> Iterator[nn.Module]:
    """Yield all modules whose construction has begun.

    The type is asked, since a proxy may do work when it is asked itself.
    """
    for one in gc.get_objects():
        if issubclass(type(one), nn.Module) and "_modules" in vars(one):
            yield one


def strategy_of(module: nn.Module, world_size: int) -> Strategy:
    """Return the strategy by which a module is trained; "script": another one than torch's own."""
    if isinstance(module, DistributedDataParallel):
        return "ddp"
    if any(isinstance(one, FSDPModule | FullyShardedDataParallel) for one in module.modules()):
        return "fsdp"
    return "none" if world_size == 1 else "script"


# The settings of torch that a script may leave in force while the measurement computes.


_DEVICES = ("cpu", "cuda")
_UNCHANGED = contextlib.nullcontext()


def own_settings() -> AbstractContextManager[None]:
    """Compute in FP32 unless stated otherwise in the ``with`` block, as in a fresh process."""
    # This is called in each timed step, where the settings are nearly always these.
    casts = any(map(torch.is_autocast_enabled, _DEVICES))
    is_own = torch.get_default_dtype() is torch.float32 and not casts
    return _UNCHANGED if is_own else _changed_settings()


@contextlib.contextmanager
def _changed_settings() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    casts = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
    torch.set_default_dtype(torch.float32)
    for device in casts:
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        for device in casts:
            torch.set_autocast_enabled(device, True)


# The steps of a script, seen through torch's hooks while the script itself is in control.
#
# At the end of each step the script calls the hook, the hook resumes the plan of the measurement up
# to the next step that it needs, and the script goes on. Nothing of the script is edited.


class SteppedOptimizers:
    """The optimizers that stepped, in this order. There may be one for each parameter."""

    def __init__(self) -> None:
        self.first: Callable[[], Optimizer | None] = _none  # it ends the steps
        self._all: weakref.WeakKeyDictionary[Optimizer, None] = weakref.WeakKeyDictionary()

    def alive(self) -> list[Optimizer]:
        return list(self._all)

    def note(self, optimizer: Optimizer) -> None:
        self._all[optimizer] = None

    def is_first(self, optimizer: Optimizer) -> bool:
        """Return whether it ends the steps. If the optimizer that did is gone, it replaces that."""
        if self.first() is None:
            self.first = weakref.ref(optimizer)
        return self.first() is optimizer


def _none() -> None:
    """Return no optimizer: none has stepped."""


class _SeenSteps:
    """The facts about the steps since they were last read."""

    def __init__(self) -> None:
        self.steps_at = ""  # the line that ended the first step
        self.backwards = 0  # of the step that is going on
        self.skipped = 0
        self._micro_steps: list[int] = []  # of each step

    def end_step(self) -> None:
        self._micro_steps.append(self.backwards)
        self.backwards = 0

    def facts(self, *, optimizers: int) -> ScriptFacts:
        """Return the facts, and begin anew."""
        seen = self._micro_steps or [0]
        facts = ScriptFacts(
            steps_at=self.steps_at,
            micro_steps=(min(seen), max(seen)),
            optimizers=optimizers,
            skipped=self.skipped,
        )
        self._micro_steps, self.skipped = [], 0
        return facts


T = TypeVar("T")
End = Callable[[Callable[[], T]], NoReturn]


class ScriptSteps(ObservedSteps, Generic[T]):
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
        super().__init__(rank, heartbeats)
        self.done = 0  # steps, with those that a GradScaler skipped
        self._case = case
        # Makes the GPU that is trained on the current one, as soon as that is known.
        self.own_device: AbstractContextManager[object] = contextlib.nullcontext()
        self._needed, self._short = needed, short
        self._fork_mark = ForkMark()  # set in a worker of a DataLoader, for example
        self._optimizers = SteppedOptimizers()
        self._seen = _SeenSteps()
        self._stepped_in_backward = ""  # the line; empty: not since the last step
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
        return trained_module(self._optimizers.alive())

    @functools.cached_property
    def strategy(self) -> Strategy:
        return strategy_of(self.module, self._case.world_size)

    def used_gpu(self) -> torch.device:
        """Return the GPU that is trained on. After its next step the plan has it as its device."""
        device = gpu_of(self._optimizers.first())
        self.own_device = torch.cuda.device(device)
        return device

    def facts(self) -> ScriptFacts:
        """Return the facts about the steps since the last call, or about all of them."""
        return self._seen.facts(optimizers=len(self._optimizers.alive()))

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
        with super().observe(on_phase, on_loss):
            self._in_data = True
            hook = self.module.register_forward_pre_hook(_Hook(self._before_forward), prepend=True)
            try:
                yield
            finally:
                hook.remove()

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
        if self._seen.backwards == 0:
            self.beat()
        self._seen.backwards += 1
        if loss is not None:
            self._on_loss(loss)
            for act in self._acts_before_backward if self._seen.backwards == 1 else ():
                act(loss)
        self._on_phase("forward")

    def after_backward(self) -> None:
        self._on_phase("backward")
        self._in_data = True

    def after_optimizer(self, optimizer: Optimizer, *, in_backward: bool) -> None:
        if self._fork_mark.is_fork:
            self._refuse(refusals.own_ranks(self._case, line_here()))
        if optimizer is not self._optimizers.first():
            self._optimizers.note(optimizer)
        if in_backward:
            self._stepped_in_backward = self._stepped_in_backward or line_here()
        elif not self._by_optimizer:
            return
        elif self._optimizers.is_first(optimizer):
            self._end_step()
        else:
            self._on_phase("optimizer")

    def after_skip(self, optimizer: Optimizer) -> None:
        """Take a step that the scaler skips as a step: its forward and backward were run."""
        if self._fork_mark.is_fork or not self._by_optimizer:
            return
        if self._optimizers.is_first(optimizer):
            self._optimizers.note(optimizer)
            self._seen.skipped += 1
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

    @property
    def _by_optimizer(self) -> bool:
        """True if the first optimizer ends the steps, and no function of the script."""
        script = self._case.script
        return script is not None and script.steps_by == BY_OPTIMIZER

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

    def _end_step(self) -> None:
        if not self._seen.backwards:
            self.beat()  # BEATS_PER_STEP
        self.done += 1
        self._seen.end_step()
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
                self._seen.steps_at = line_here()
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
            raise refusals.no_group(self._case, self._seen.steps_at)
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
        short = self._short(case, how, self.done, self._seen.steps_at, self._needed)
        if self.done < self._needed:
            raise short
        if not dist.is_initialized():
            raise refusals.failed_exit(case, "an error, after which it ended its group", self.done)
        try:
            await_other_ends(case, self.rank, how, self.done)
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


def _return(result: T) -> T:
    return result


def _raise(error: BaseException) -> NoReturn:
    raise error
