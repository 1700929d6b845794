"""The frame of a command that measures: a leased machine, and an early end."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TypeVar

import typer

from ddp_perf.cli.command import BudgetProgress, write_line
from ddp_perf.config.loading import find_suites
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.errors import ConfigError, DdpPerfError, ExitCode, ResultsError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.render.tables import LiveBar
from ddp_perf.render.units import counted
from ddp_perf.session.measure.environment import check_runtime, describe_environment
from ddp_perf.session.measure.experiment import Log
from ddp_perf.session.measure.machine import Closable, open_machine
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.host.termination import sigterm_calls

LauncherT = TypeVar("LauncherT", bound=Closable)
_CONFIGS = Path("bench_configs")
AGAIN = "run the same command again to go on"


class TerminatedError(BaseException):
    """SIGTERM was received. Like KeyboardInterrupt, this is not an ``Exception``."""


def raise_terminated() -> NoReturn:
    """End what runs, as a handler of SIGTERM."""
    raise TerminatedError


class Ending:
    """The end of a measurement: ``code`` is the exit code if it was early, and else None."""

    def __init__(self) -> None:
        self.code: int | None = None

    def note(self, why: str, code: int) -> None:
        """Say why the measurement ends early."""
        write_line(why)
        self.code = code

    def exit(self, code: int) -> NoReturn:
        """End the command with this code, or with that of an early end."""
        raise typer.Exit(code if self.code is None else self.code)


@contextlib.contextmanager
def endable(go_on: str = "", *undecided: type[DdpPerfError]) -> Iterator[Ending]:
    """End the block at Ctrl-C, SIGTERM or SIGHUP, and go on behind it with what was measured.

    It is the outermost block, so that a second signal ends the command. ``go_on`` is what a user
    may do then. The ``undecided`` errors end it likewise.
    """
    ending, then = Ending(), go_on and f"; {go_on}"
    try:
        with sigterm_calls(raise_terminated):
            yield ending
    except KeyboardInterrupt:
        ending.note(f"interrupted{then}", ExitCode.INTERRUPTED)
    except TerminatedError:
        ending.note(f"ended by SIGTERM{then}", ExitCode.TERMINATED)
    except undecided as error:
        ending.note(f"{error}{then}", ExitCode.UNDECIDED)


def check_writable(*directories: Path) -> None:
    """Make the directories of results. Raises ResultsError, before anything is launched."""
    for directory in directories:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=directory).close()
        except OSError as error:
            raise ResultsError(f"{directory}: cannot be written: {error.strerror}") from None


def suite_files(config: Path | None) -> list[Path]:
    """Return the suite file that is named, or those of bench_configs/. Raises ConfigError."""
    paths = [config] if config is not None else find_suites(_CONFIGS)
    if not paths:
        raise ConfigError(f"{_CONFIGS}: there is no suite file; name one with --config")
    return paths


def leased(capacity: Capacity, launcher: LauncherT) -> contextlib.AbstractContextManager[LauncherT]:
    """Return the machine with its launcher, which is closed at the end. Raises LeaseError."""
    return open_machine(capacity, launcher, on_wait=write_line)


def checked_environment(launcher: Launcher, case: Case, capacity: Capacity) -> Environment:
    """Return the conditions of launches of the case. Raises LaunchError if torch cannot run it."""
    runtime = launcher.runtime(case)
    check_runtime(case.tier, runtime, capacity.machine)
    return describe_environment(capacity, case.tier, runtime, Path.cwd())


@contextlib.contextmanager
def going_on(log: Log, budget_s: float) -> Iterator[BudgetProgress]:
    """Yield the progress of an experiment, whose time begins, and close its log at the end.

    It says that the experiment goes on after the launches of an earlier run, or why it does not.
    """
    with contextlib.closing(log):
        if log.entries:
            write_line(f"goes on after {counted(len(log.entries), 'launch')} of {log.path}")
        elif log.changed:
            write_line(f"begins anew, since conditions have changed: {', '.join(log.changed)}")
        with LiveBar(sys.stderr) as bar:  # so that stdout contains only the result
            yield BudgetProgress(bar, budget_s)
