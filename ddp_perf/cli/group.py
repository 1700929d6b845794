"""The end of every command: an exit code, and an error in one line."""

from __future__ import annotations

import io
import sys
from typing import Any, NoReturn

import typer
import typer.core

from ddp_perf.core.exit_code import ExitCode
from ddp_perf.errors import DdpPerfError

_WHOLE = 1000  # characters: a line of help is wrapped, and never cut off


class CommandGroup(typer.core.TyperGroup):
    """The commands. An error that a user can correct is one line, not a traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the help where a command is missing.

        With `no_args_is_help` the help would be the message of an error, which is one line here.
        """
        if not args:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by their panels, in the order in which they were added."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None  # it is listed
            panel = getattr(command, "rich_help_panel", None)
            rows = panels.setdefault(panel if isinstance(panel, str) else "Commands", [])
            rows.append((name, command.get_short_help_str(_WHOLE)))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def main(self, *args: Any, **options: Any) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # in every locale, as JSON requires
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except typer.TyperException as error:
            code = _refuse(_described(error))
        except DdpPerfError as error:
            code = _refuse(str(error))
        sys.exit(code)


def _described(error: typer.TyperException) -> str:
    """Return the error's message; that of a missing argument with the argument's help."""
    message = error.format_message()
    about: str | None = getattr(getattr(error, "param", None), "help", None)
    if not message.startswith("Missing argument") or not about:
        return message
    return f"{message.rstrip('.')}: {about[0].lower()}{about[1:]}"


def _refuse(message: str) -> ExitCode:
    typer.echo(f"ddp-perf: {' '.join(message.split())}", err=True)
    return ExitCode.USAGE
