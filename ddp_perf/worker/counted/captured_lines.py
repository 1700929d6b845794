"""The source lines of what dynamo reports: it gives files and lines, and renames functions."""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Iterable, Iterator, Sequence
from traceback import FrameSummary
from types import CodeType, FrameType

from ddp_perf.worker.counted.origin import Origin, SourceLine, line_of, origin_of
from ddp_perf.worker.steps.trainer import Trainer

# Dynamo's own function for the rest of a function after a graph break.
_RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+)_at_\d+")
_STEP = SourceLine(Trainer.step.__code__, Trainer.step.__code__.co_firstlineno)
_OURS = (Origin.WORKLOADS, Origin.STRATEGIES, Origin.TRAINER)


def lines_of(frames: Iterable[FrameSummary]) -> list[SourceLine]:
    """Return the lines of the frames, in their order; those without source are left out."""
    found = (_line(each.filename, each.lineno or 0, each.name) for each in frames)
    return [line for line in found if line is not None]


def stack_of(frame: FrameType | None) -> list[SourceLine]:
    """Return the lines of ``frame`` and its callers, the outermost first."""
    stack: list[SourceLine] = []
    while frame is not None:
        if _RESUMED.fullmatch(frame.f_code.co_name):
            stack += lines_of(
                [FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)]
            )
        else:
            stack.append(line_of(frame))
        frame = frame.f_back
    return stack[::-1]


def users_line(stack: Sequence[SourceLine]) -> SourceLine:
    """Return the innermost line of the user's, else of this package's workloads, else of all.

    The outermost line comes first in ``stack``. Of an empty one it is that of the whole step.
    """
    by_origin = {origin_of(line.code.co_filename): line for line in stack}  # the innermost of each
    own = (by_origin[each] for each in (Origin.USER, *_OURS) if each in by_origin)
    return next(own, stack[-1] if stack else _STEP)


def _line(file: str, number: int, name: str) -> SourceLine | None:
    name = _RESUMED.sub(r"\1", name)
    fitting = [
        code
        for code in _functions(file)
        if code.co_name == name and any(line == number for *_, line in code.co_lines())
    ]
    return SourceLine(fitting[-1], number) if fitting else None


@functools.cache
def _functions(file: str) -> tuple[CodeType, ...]:
    """Return the code of the file and of all its functions; nothing if it has no source."""
    source = "".join(linecache.getlines(file))
    return tuple(_nested(compile(source, file, "exec"))) if source else ()


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
