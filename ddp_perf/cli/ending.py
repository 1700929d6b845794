"""The early end of a measurement by SIGTERM."""

from __future__ import annotations

from typing import NoReturn


class TerminatedError(BaseException):
    """SIGTERM was received. Like KeyboardInterrupt, this is not an ``Exception``."""


def raise_terminated() -> NoReturn:
    """End what runs, as a handler of SIGTERM."""
    raise TerminatedError
