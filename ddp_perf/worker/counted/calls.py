"""The calls of the user's Python functions."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import NamedTuple

from ddp_perf.worker.counted.origin import Origin, SourceLine, line_of, origin_of

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
