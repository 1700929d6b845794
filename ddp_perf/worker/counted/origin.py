"""The owner of the code that a frame runs: the user, this package, or a library."""

from __future__ import annotations

import functools
import importlib.util
import os
import sysconfig
from collections.abc import Iterable
from enum import Enum, auto
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import torch

import ddp_perf

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
