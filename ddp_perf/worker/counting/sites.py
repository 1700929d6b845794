"""The place in the source, and in the model, where an operation is dispatched."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddp_perf.core.work import Site
from ddp_perf.torch_compat.internals import (
    backward_call,
    module_call,
    next_node,
    node_at_work,
    number_of,
)
from ddp_perf.worker.counted.autograd_graph import ACCUMULATION
from ddp_perf.worker.counted.makers import Makers
from ddp_perf.worker.counted.origin import PACKAGE, Origin, SourceLine, line_of, origin_of

# The frames that show which module or optimizer is at work. None of them binds a name anew, so
# reading its variables keeps no tensor alive.
_OPTIMIZER_STEP: CodeType = Optimizer.profile_hook_step(lambda self: None).__code__
_ZERO_GRAD: CodeType = inspect.unwrap(Optimizer.zero_grad).__code__
_OURS = frozenset({Origin.WORKLOADS, Origin.STRATEGIES})


@functools.cache
def _at_work() -> frozenset[CodeType]:
    return frozenset({module_call(), _OPTIMIZER_STEP, _ZERO_GRAD})


@functools.cache
def _backward() -> CodeType:
    return backward_call()


class Spot(NamedTuple):
    """A line with the path of the module that is active there, if any."""

    line: SourceLine
    module: str


class SpotFinder:
    """A finder of the spot of the operation that is dispatched at the moment.

    An operation of the backward has that of its forward operation, unless Python code of the
    user's runs there: a hook, or a forward that is computed again.
    """

    def __init__(self, model: nn.Module, makers: Makers) -> None:
        self._makers = makers
        self._paths = {id(module): _starred(path) for path, module in model.named_modules()}
        self._forward: dict[int, Spot] = {}  # by the sequence number of the autograd node
        self._next = 0
        self._path_of: dict[SourceLine, str] = {}  # of the module whose line it is
        self._used_by: dict[int, int] = {}  # sequence number of a parameter's first use, by id

    def begin_step(self) -> None:
        """Forget the autograd nodes of earlier steps."""
        self._forward.clear()
        self._used_by.clear()
        self._next = next_node()

    def note_use(self, parameter: torch.Tensor, node: int) -> None:
        """Note that the autograd node with the number ``node`` uses ``parameter``."""
        self._used_by[id(parameter)] = min(node, self._used_by.get(id(parameter), node))

    def here(self) -> Spot:
        """Return the spot of the operation whose dispatch the caller handles."""
        spot = self._find(_Stack(sys._getframe(2)))
        # The operation's own nodes are already numbered.
        for number in range(self._next, next_node()):
            self._forward[number] = spot
        self._next = next_node()
        return spot

    def _find(self, stack: _Stack) -> Spot:
        if stack.before_backward is not None:
            forward = self._spot_of_node()
            if stack.own is None:
                return forward or self._find(_Stack(stack.before_backward))
            line = self._line(stack)
            # A checkpointed block is not called as a module when it is computed again.
            there = self._path_of.get(line, forward.module if forward else "")
            return Spot(line, self._path(stack.active) or there)
        spot = Spot(self._line(stack), self._path(stack.active))
        if not stack.inner:
            self._path_of[spot.line] = spot.module
        return spot

    def _line(self, stack: _Stack) -> SourceLine:
        """Return the user's line, or the maker's where a library's module works by itself."""
        working = stack.active[: stack.inner]
        wrapped = bool(working) and isinstance(working[-1], DistributedDataParallel)
        if working and (stack.own is None or len(working) > 1 or wrapped):
            made = (line for each in working if (line := self._makers.line(each)) is not None)
            if (line := next(made, None)) is not None:
                return line
        line = stack.own or stack.trainer
        assert line is not None  # the Trainer's, at least
        return line

    def _path(self, active: Sequence[object]) -> str:
        return next((self._paths[id(each)] for each in active if id(each) in self._paths), "")

    def _spot_of_node(self) -> Spot | None:
        node: Any = node_at_work()
        if node is None:
            return None
        if node.name() == ACCUMULATION:
            return self._forward.get(self._used_by.get(id(node.variable), -1))
        number = number_of(node)
        # The node of a change of a view in place is made after that operation.
        return self._forward.get(number - 1 if node.name() == "CopySlices" else number)


class _Stack:
    """The facts that a Python stack shows, from a frame to the Trainer's or to a backward's."""

    def __init__(self, frame: FrameType | None) -> None:
        self.active: list[object] = []  # modules and optimizers at work, innermost first
        self.own: SourceLine | None = None  # the user's innermost line, else this package's
        self.inner = 0  # how many of ``active`` are at work for that line
        self.trainer: SourceLine | None = None
        self.before_backward: FrameType | None = None  # None: the stack is not of a backward
        is_users = False
        while frame is not None and self.trainer is None and not (is_users and self.active):
            code = frame.f_code
            origin = origin_of(code.co_filename)
            if code in _at_work():
                self.active.append(frame.f_locals["self"])
            elif code is _backward():
                self.before_backward = frame.f_back
                return
            elif origin is Origin.TRAINER:
                self.trainer = line_of(frame)
            elif (origin is Origin.USER and not is_users) or (origin in _OURS and not self.own):
                is_users = origin is Origin.USER
                self.own = line_of(frame)
                self.inner = len(self.active)
            frame = frame.f_back
        if self.own is None:
            self.inner = len(self.active)


class SiteNames:
    """The names of spots, by which they are found in another checkout and in the next version.

    A file is named from the first of ``import_paths`` on that contains it, else from the project's
    directory, else from its package. One of this package is always named from it: the directory
    where it is installed may be in the project, and differs between versions of Python.
    """

    def __init__(self, import_paths: Sequence[str]) -> None:
        self._roots = [Path(path).absolute() for path in (*import_paths, os.getcwd())]

    def site(self, spot: Spot) -> Site:
        """Return the site of ``spot``."""
        code, number = spot.line
        return Site(
            file=self._file(Path(code.co_filename).absolute()),
            function=getattr(code, "co_qualname", code.co_name),  # the short name before 3.11
            text=linecache.getline(code.co_filename, number).strip(),
            line=number,
            module=spot.module,
        )

    def _file(self, path: Path) -> str:
        if path.is_relative_to(PACKAGE):
            return path.relative_to(PACKAGE.parent).as_posix()
        for root in self._roots:
            if path.is_relative_to(root):
                return path.relative_to(root).as_posix()
        package = path.parent
        while (package / "__init__.py").exists():
            package = package.parent
        return path.relative_to(package).as_posix()


def _starred(path: str) -> str:
    """Return the module path without DDP's own level, and with "*" for each number."""
    path = path.removeprefix("module.") if path != "module" else ""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
