"""Errors that a user can fix, and the exit codes of all commands, scripts and strict sessions."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable

# Errors that a user can fix: each text states what, where and the remedy in one or two lines.


class DdpPerfError(Exception):
    """Base of every error whose text is meant for the user, without a traceback."""


class ConfigError(DdpPerfError):
    """A suite file, or an option that overrides it, cannot be run as written."""


class DataError(DdpPerfError):
    """A file of training data does not have the expected format."""


class BaselineError(DdpPerfError):
    """A baseline file cannot be read, or a baseline must not be saved."""


class ResultsError(DdpPerfError):
    """A results file cannot be read, or cannot be compared with another one."""


class HistoryError(DdpPerfError):
    """A history cannot be opened, read or written, or does not contain what was asked for."""


class CollectiveError(DdpPerfError):
    """A collective gave a result that differs from the arithmetic one."""


class TraceError(DdpPerfError):
    """A profiler's trace cannot be read, or contains nothing that can be analysed."""


class LaunchError(DdpPerfError):
    """The machinery that starts ranks failed before any rank of the case ran."""


class ScriptError(DdpPerfError):
    """A training script cannot be measured as it is."""


class NeedsGpuError(ScriptError, RuntimeError):
    """A training script uses CUDA where its step is counted, on a CPU.

    Code that does without CUDA where it has to catches a RuntimeError.
    """


class CountError(DdpPerfError):
    """A step cannot be counted without computing it."""


class GpuError(DdpPerfError):
    """The machine has GPUs that cannot be read, so nobody knows what it is to measure."""


class SideError(DdpPerfError):
    """A side of a duel does not exist, cannot be prepared, or cannot run ranks."""


class BudgetError(DdpPerfError):
    """The time budget of a duel has no room for the first verdict on each case."""

    def __init__(self, text: str, *, needed_s: float) -> None:
        super().__init__(text)
        self.needed_s = needed_s  # a budget that has


class LeaseError(DdpPerfError):
    """The machine, or a GPU of it, is in use by another process or user."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` with the nearest known name, or "" if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def nearest_or_all(name: str, known: Iterable[str]) -> str:
    """Return what `did_you_mean` returns, or ``; there are: a, b`` if no known name is near."""
    names = list(known)
    everything = f"; there are: {', '.join(names)}" if names else ""
    return did_you_mean(name, names) or everything


# The exit codes: one table for all commands, scripts and strict sessions.


class ExitCode(enum.IntEnum):
    """The exit code of a command, a script or a strict session, with its meaning and its remedy.

    Those that pytest has, too, have its meaning. It is never 2, which pytest and shells have for
    several ends.
    """

    meaning: str
    remedy: str

    def __new__(cls, number: int, meaning: str, remedy: str) -> ExitCode:
        code = int.__new__(cls, number)
        code._value_, code.meaning, code.remedy = number, meaning, remedy
        return code

    GREEN = 0, "green", "nothing"
    RED = (
        1,
        "red: training got slower or scales worse, a step does other work, a rank failed, a result"
        " is wrong, a target is missed, or a test of your own failed",
        "look at the code",
    )
    ERROR = (
        3,
        "an error beside training: in the set-up or pytest itself, GPUs that cannot be read, or a"
        " full disk",
        "look at the log",
    )
    USAGE = (
        4,
        "a wrong argument, suite file or stored file, or a test file that cannot be imported",
        "correct it",
    )
    NO_TESTS = 5, "no case was selected", "correct the selection"
    UNDECIDED = (  # EX_TEMPFAIL of sysexits.h: try again; pytest has 6, --max-warnings
        75,
        "undecided: the machine is too noisy or in use, a GPU or a core is missing, ranks cannot be"
        " started, or there is nothing to compare with",
        "look at the machine; restore the baseline, or store the first session: --save-baseline",
    )
    INTERRUPTED = 130, "interrupted by Ctrl-C; the files have what was measured", "run it again"
    TERMINATED = 143, "ended by SIGTERM; the files have what was measured", "run it again"
