"""The source lines that made the modules and the optimizers of a workload."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from ddp_perf.worker.counted.origin import Origin, SourceLine, line_of, origin_of


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
