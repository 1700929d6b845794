"""The place of an operation: in the source, in the model, and in calls of the user's functions."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import linecache
import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

import ddp_perf
from ddp_perf.core.work import Site
from ddp_perf.torch_compat.internals import (
    backward_call,
    module_call,
    next_node,
    node_at_work,
    number_of,
)

# The nodes of an autograd graph.


ACCUMULATION = "torch::autograd::AccumulateGrad"  # the node of a parameter


def count_nodes(loss: torch.Tensor, note_use: Callable[[torch.Tensor, int], None]) -> Counter[str]:
    """Return the number of nodes behind ``loss`` by name, each node once.

    ``note_use`` is called with each parameter and the number of a node that uses it.
    """
    names: Counter[str] = Counter()
    first: Any = loss.grad_fn
    seen = {first} - {None}
    waiting = list(seen)
    while waiting:
        node = waiting.pop()
        names[node.name().rpartition("::")[2]] += 1
        for following, _ in node.next_functions:
            if following is None:
                continue
            if following.name() == ACCUMULATION:
                note_use(following.variable, number_of(node))
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return names


# The owner of the code that a frame runs: the user, this package, or a library.


PACKAGE = Path(ddp_perf.__file__).parent
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_LIBRARIES = frozenset(
    {Path(sysconfig.get_path("stdlib")), Path(os.__file__).parent, Path(torch.__file__).parent}
)
_own: set[Path] = set()  # of the user's, although they are installed


class Origin(Enum):
    """The owner of a source file."""

    USER = auto()
    WORKLOADS = auto()  # of this package
    STRATEGIES = auto()
    TRAINER = auto()
    RECORDER = auto()  # the rest of this package
    LIBRARY = auto()  # torch, the standard library, installed packages, generated code


class SourceLine(NamedTuple):
    """A line of a function."""

    code: CodeType
    number: int


def line_of(frame: FrameType) -> SourceLine:
    """Return the line that ``frame`` runs at the moment."""
    return SourceLine(frame.f_code, frame.f_lineno)


def own_package(module: str) -> None:
    """Take the top package of ``module`` for the user's own, also where it is installed."""
    found = importlib.util.find_spec(module.partition(".")[0])
    if found is not None and found.origin is not None and not found.submodule_search_locations:
        _own.add(Path(found.origin).absolute())
    elif found is not None:
        _own.update(Path(place).absolute() for place in found.submodule_search_locations or ())
    origin_of.cache_clear()


@functools.cache
def origin_of(filename: str) -> Origin:
    """Return the owner of a file. Code without a file, as of dataclasses, is a library's."""
    if filename.startswith("<"):
        return Origin.LIBRARY
    path = Path(filename).absolute()
    if path.is_relative_to(PACKAGE):
        return _part_of_package(path)
    if _is_of(path, _own):
        return Origin.USER
    installed = not _INSTALLED.isdisjoint(path.parts)
    return Origin.LIBRARY if installed or _is_of(path, _LIBRARIES) else Origin.USER


def _part_of_package(path: Path) -> Origin:
    if path == PACKAGE / "worker/steps/trainer.py":
        return Origin.TRAINER
    if path.is_relative_to(PACKAGE / "workloads"):
        return Origin.WORKLOADS
    return Origin.STRATEGIES if path.is_relative_to(PACKAGE / "strategies") else Origin.RECORDER


def _is_of(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


# The source lines that made the modules and the optimizers of a workload.


class Makers:
    """The lines that made the noted modules and optimizers.

    A copy, as in ``nn.TransformerEncoder``, has none.
    """

    def __init__(self) -> None:
        self._lines = WeakIdKeyDictionary()

    def line(self, made: object) -> SourceLine | None:
        """Return the line that made a module or an optimizer, or None if it was not noted."""
        line: SourceLine | None = self._lines.get(made)  # type: ignore[no-untyped-call]
        return line

    def note(self, made: object, frame: FrameType | None) -> None:
        """Note that ``frame`` makes ``made``, or a frame around it: the user's if there is one."""
        found: dict[Origin, SourceLine] = {}
        while frame is not None and Origin.USER not in found:
            if not _constructs(frame, made):
                found.setdefault(origin_of(frame.f_code.co_filename), line_of(frame))
            frame = frame.f_back if Origin.TRAINER not in found else None
        for origin in (Origin.USER, Origin.WORKLOADS, Origin.STRATEGIES, Origin.TRAINER):
            if origin in found:
                self._lines[made] = found[origin]
                return


@contextlib.contextmanager
def note_makers() -> Iterator[Makers]:
    """Note who makes each module and optimizer inside the ``with`` block."""
    makers = Makers()
    with _noted(nn.Module, makers), _noted(Optimizer, makers):
        yield makers


@contextlib.contextmanager
def _noted(base: type, makers: Makers) -> Iterator[None]:
    original = base.__init__  # type: ignore[misc]

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        makers.note(self, sys._getframe(1))
        original(self, *args, **kwargs)

    base.__init__ = initialise  # type: ignore[misc]
    try:
        yield
    finally:
        base.__init__ = original  # type: ignore[misc]


def _constructs(frame: FrameType, made: object) -> bool:
    """Return whether the frame is a constructor of ``made`` itself, in a subclass."""
    code = frame.f_code
    own = code.co_varnames[0] if code.co_argcount else None
    return code.co_name == "__init__" and frame.f_locals.get(own or "") is made


# The place in the source, and in the model, where an operation is dispatched.


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


# The calls of the user's Python functions.


_USERS = frozenset({Origin.USER, Origin.WORKLOADS})
_CALLERS = _USERS | {Origin.STRATEGIES, Origin.TRAINER}
# Python 3.12 and later run these in place, without a call.
_IN_PLACE = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})


class Call(NamedTuple):
    """A function, and the innermost line of the user's that calls it, maybe through a library."""

    function: CodeType
    caller: SourceLine | None  # None: no line of the user's or the Trainer's is on the stack


@contextlib.contextmanager
def count_calls() -> Iterator[Counter[Call]]:
    """Count the calls of the user's functions in this thread inside the ``with`` block.

    A generator is called once for each value, and once for its end.
    """
    calls: Counter[Call] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            code = frame.f_code
            if origin_of(code.co_filename) in _USERS and code.co_name not in _IN_PLACE:
                calls[Call(code, _caller(frame.f_back))] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def _caller(frame: FrameType | None) -> SourceLine | None:
    while frame is not None and origin_of(frame.f_code.co_filename) not in _CALLERS:
        frame = frame.f_back
    return None if frame is None else line_of(frame)


# The calls by which user code copies to the host, or waits for the GPU, without an operation.
#
# On a CPU, where a step is counted, ``tensor.cpu()``, ``tolist()`` and ``numpy()`` dispatch
# nothing.
# On a GPU the host waits in each of them.


_METHODS = ("cpu", "tolist", "numpy", "to")


@contextlib.contextmanager
def note_host_copies(note: Callable[[str, str], None]) -> Iterator[None]:
    """Call ``note(name, dtype)`` for each such call of the user's inside the ``with`` block.

    ``to`` is one if it names the device "cpu". The names are in ``HOST_READS``.
    """
    own = {name: torch.Tensor.__dict__.get(name) for name in _METHODS}
    synchronize = torch.cuda.synchronize
    for name in _METHODS:
        setattr(torch.Tensor, name, _noted_copy(name, getattr(torch.Tensor, name), note))
    torch.cuda.synchronize = _noted_wait(note)
    try:
        yield
    finally:
        torch.cuda.synchronize = synchronize
        for name, method in own.items():
            if method is None:
                delattr(torch.Tensor, name)  # that of its C base shows again
            else:
                setattr(torch.Tensor, name, method)


def _noted_copy(name: str, method: Any, note: Callable[[str, str], None]) -> Any:
    def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        device = args[0] if args else kwargs.get("device")
        copies = name != "to" or (isinstance(device, str) and device == "cpu")
        if copies and _is_users(sys._getframe(1).f_code):
            note("copy_to_host", str(tensor.dtype).removeprefix("torch."))
        return method(tensor, *args, **kwargs)

    return call


def _noted_wait(note: Callable[[str, str], None]) -> Any:
    def synchronize(device: object = None) -> None:
        if _is_users(sys._getframe(1).f_code):
            note("synchronize", "none")

    return synchronize


def _is_users(code: CodeType) -> bool:
    return origin_of(code.co_filename) in _USERS
