"""The exit codes: one table for all commands, scripts and strict sessions."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The exit code of a command or a strict session. The table of docs/ci.md says what to do.

    Those that pytest has, too, have its meaning. It is never 2, which pytest and shells have for
    several ends.
    """

    GREEN = 0
    RED = 1  # training got worse, or a result is wrong
    ERROR = 3  # beside training, as a full disk
    USAGE = 4  # an argument, or a file that cannot be read
    NO_TESTS = 5  # were selected
    UNDECIDED = 75  # EX_TEMPFAIL of sysexits.h: try again; pytest has 6, --max-warnings
    INTERRUPTED = 130  # by Ctrl-C, as in a shell
    TERMINATED = 143  # by SIGTERM, as in a shell
