"""How every command ends: a code that says what was found, an error in one line."""

from __future__ import annotations

import enum
import io
import sys
from typing import Any, NoReturn

import typer
import typer.core

from ddp_perf.errors import DdpPerfError


class ExitCode(enum.IntEnum):
    """What a script reads. Typer's own code for usage, 2, is taken: 4 is pytest's."""

    PASS = 0
    REGRESSION = 1
    UNDECIDED = 2
    USAGE = 4


class CommandGroup(typer.core.TyperGroup):
    """The commands, and one line instead of a traceback for what a user can mend."""

    def main(self, *args: Any, **options: Any) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # in every locale, as JSON has to be
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except typer.TyperException as error:
            code = _refuse(error.format_message())
        except DdpPerfError as error:
            code = _refuse(str(error))
        sys.exit(code)


def _refuse(message: str) -> ExitCode:
    typer.echo(f"ddp-perf: {' '.join(message.split())}", err=True)
    return ExitCode.USAGE
