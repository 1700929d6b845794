"""The line of a script, by which a user finds what is reported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import CodeType, TracebackType

import torch

import ddp_perf

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
