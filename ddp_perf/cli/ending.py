"""The early end of a measurement by Ctrl-C or SIGTERM: its exit code is that of a shell."""

from __future__ import annotations

from typing import NoReturn

INTERRUPTED, TERMINATED = 130, 143


class TerminatedError(BaseException):
    """SIGTERM was received. Like KeyboardInterrupt, this is not an ``Exception``."""


def raise_terminated() -> NoReturn:
    """End what runs, as a handler of SIGTERM."""
    raise TerminatedError
