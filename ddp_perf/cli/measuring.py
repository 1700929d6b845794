"""The frame of a command that measures: a leased machine, and an early end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn, TypeVar

import typer

from ddp_perf.cli.command import write_line
from ddp_perf.errors import ExitCode
from ddp_perf.session.measure.machine import Closable, open_machine
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.host.termination import sigterm_calls

LauncherT = TypeVar("LauncherT", bound=Closable)
AGAIN = "run the same command again to go on"
KEPT = "what was measured is kept"


class TerminatedError(BaseException):
    """SIGTERM was received. Like KeyboardInterrupt, this is not an ``Exception``."""


def raise_terminated() -> NoReturn:
    """End what runs, as a handler of SIGTERM."""
    raise TerminatedError


class Ending:
    """The end of a measurement: ``why`` it was early, and the exit code of that, if it was."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.code: int | None = None

    def note(self, why: str, code: int) -> None:
        """State why the measurement ends early."""
        self.why, self.code = why, code

    def exit(self, code: int) -> NoReturn:
        """End the command with this code, or say why it ended early, with the code of that."""
        if self.why is not None:
            write_line(self.why)
        raise typer.Exit(code if self.code is None else self.code)


@contextlib.contextmanager
def endable(kept: str) -> Iterator[Ending]:
    """End the block at Ctrl-C, SIGTERM or SIGHUP, and go on behind it with what it has.

    ``kept`` is what a user may do with that.
    """
    ending = Ending()
    try:
        with sigterm_calls(raise_terminated):
            yield ending
    except KeyboardInterrupt:
        ending.note(f"interrupted; {kept}", ExitCode.INTERRUPTED)
    except TerminatedError:
        ending.note(f"ended by SIGTERM; {kept}", ExitCode.TERMINATED)


def leased(capacity: Capacity, launcher: LauncherT) -> contextlib.AbstractContextManager[LauncherT]:
    """Return the machine with its launcher, which is closed at the end. Raises LeaseError."""
    return open_machine(capacity, launcher, on_wait=write_line, on_sigterm=raise_terminated)
