"""The events of torch in a script, seen by torch's hooks, and by replaced functions elsewhere."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ddp_perf.errors import ScriptError

# The replacement of functions of a module or a class, for as long as a script runs.


@contextlib.contextmanager
def patched(owner: Any, name: str, around: Callable[..., Any]) -> Iterator[None]:
    """Call ``around(original, …)`` in place of ``owner.name(…)`` in the ``with`` block."""
    found = inspect.getattr_static(owner, name)
    original = found.__func__ if isinstance(found, staticmethod | classmethod) else found

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    is_bound_otherwise = isinstance(found, staticmethod | classmethod)
    setattr(owner, name, type(found)(wrapper) if is_bound_otherwise else wrapper)
    try:
        yield
    finally:
        setattr(owner, name, found)


def function_of(target: str, script: str) -> tuple[Any, str]:
    """Return the owner and the name of ``module:function``, which may be a method.

    Raises ScriptError if there is none, or if it is of ``script`` itself, by its module's name.
    """
    module, _, path = target.partition(":")
    if module in ("__main__", script):
        raise ScriptError(
            f"steps_by: {target} is of the script itself, where it is not defined before the"
            " script runs; name a function of a module that the script imports"
        )
    *owners, name = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        function = getattr(owner, name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ScriptError(f"steps_by: {target} does not exist: {error}") from None
    if not callable(function):
        raise ScriptError(f"steps_by: {target} is no function, but {type(function).__name__}")
    return owner, name


# The events of torch in a script, seen by torch's hooks, and by wrappers where it has none.


class Observer(Protocol):
    """A receiver of events, in the middle of the script."""

    def before_backward(self, loss: torch.Tensor | None) -> None:
        """Note that a backward begins, which is not part of another one."""
        ...

    def after_backward(self) -> None:
        """Note that this backward has ended."""
        ...

    def after_optimizer(self, optimizer: Optimizer, *, in_backward: bool) -> None:
        """Note that an optimizer has stepped, which is not part of another one."""
        ...

    def after_skip(self, optimizer: Optimizer) -> None:
        """Note that a GradScaler has skipped the optimizer's step."""
        ...

    def before_end_of_group(self) -> None:
        """Note that the script ends its process group next."""
        ...

    def before_own_ranks(self) -> None:
        """Note that the script starts processes by torch.multiprocessing next."""
        ...


class TorchEvents:
    """The events of a script, for one observer."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._in_backward = False
        self._stepping: list[Optimizer] = []  # each within the one before
        self._stepped: Optimizer | None = None  # the last one

    @contextlib.contextmanager
    def observed(self) -> Iterator[None]:
        """Call the observer in the ``with`` block."""
        spawning = importlib.import_module("torch.multiprocessing.spawn")
        with contextlib.ExitStack() as stack:
            for owner, name, around in (
                (torch.autograd, "backward", self._around_backward),
                (torch.amp.GradScaler, "step", self._around_scaler),
                (dist, "destroy_process_group", self._around_end_of_group),
                # mp.spawn calls the first one, Lightning the second one.
                (spawning, "start_processes", self._around_start),
                (torch.multiprocessing, "start_processes", self._around_start),
            ):
                stack.enter_context(patched(owner, name, around))
            # A script may compile the step of its optimizer, with the hooks that it calls.
            untraced: Callable[[Any], Any] = torch.compiler.disable
            for hook in (
                register_optimizer_step_pre_hook(untraced(self._before_step)),
                register_optimizer_step_post_hook(untraced(self._after_step)),
            ):
                stack.callback(hook.remove)
            yield

    def _around_backward(self, backward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._in_backward:  # of a checkpoint, which runs a part of the backward by itself
            return backward(*args, **kwargs)
        first = args[0] if args else kwargs.get("tensors")
        self._observer.before_backward(first if isinstance(first, torch.Tensor) else None)
        self._in_backward = True
        try:
            result = backward(*args, **kwargs)
        finally:
            self._in_backward = False
        self._observer.after_backward()
        return result

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._stepping.append(optimizer)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        # A step that raised an error may have left its optimizer there.
        is_part = self._stepping[0] is not optimizer
        self._stepped = optimizer
        if is_part:
            self._stepping.pop()
            return
        self._stepping.clear()
        self._observer.after_optimizer(optimizer, in_backward=self._in_backward)

    def _around_scaler(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._stepped = None
        result = step(*args, **kwargs)
        optimizer = args[1] if len(args) > 1 else kwargs["optimizer"]
        if self._stepped is None:
            self._observer.after_skip(optimizer)
        return result

    def _around_end_of_group(self, destroy: Callable[..., Any], group: Any = None) -> None:
        if dist.is_initialized() and group in (None, dist.group.WORLD):
            self._observer.before_end_of_group()
        destroy(group)

    def _around_start(self, start: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._observer.before_own_ranks()
        return start(*args, **kwargs)
