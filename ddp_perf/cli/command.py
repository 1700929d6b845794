"""The parts that commands share: options, exit codes, errors, progress and an early end."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from ddp_perf.core.baseline import TYPICAL_STEP
from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.core.metric import EXACT, METRICS, STEP_TIME, TARGETS
from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.values import Duel
from ddp_perf.errors import ConfigError, DdpPerfError, ExitCode
from ddp_perf.render.tables import LiveBar
from ddp_perf.render.terminal import Block, text_of
from ddp_perf.render.units import (
    counted,
    describe_duration,
    milliseconds,
    parse_duration,
    to_json,
)
from ddp_perf.render.visible import printable
from ddp_perf.session.measure.rounds import LaunchOutcome

# Options that several commands share.


_MOST_RANKS = 2**20


def budget_seconds(text: str) -> float:
    """Return the seconds of a ``--budget``. Raises ConfigError."""
    try:
        return parse_duration(text)
    except ConfigError as error:
        raise ConfigError(f"--budget: {error}") from None


def parse_ranks(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers of ranks that an option lists. Raises ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    sizes = [int(part) for part in parts if part.isdecimal() and 0 < int(part) <= _MOST_RANKS]
    if len(sizes) < len(parts):
        raise ConfigError(f"{option} {text}: it is not a list of ranks, as in 16,32,256")
    return tuple(sorted(set(sizes)))


def _each_acknowledged(metrics: list[str] | None) -> list[str] | None:
    for metric in metrics or ():
        if metric not in _ACKNOWLEDGED:
            raise typer.BadParameter(f"{metric!r} is not one of {', '.join(_ACKNOWLEDGED)}")
    return metrics


def _recorded(metric: str) -> str:
    if metric not in _RECORDED:
        raise typer.BadParameter(f"{metric!r} is not one of {', '.join(_RECORDED)}")
    return metric


NO_USER_CODE = "--no-user-code"  # where a suite is launched that needs none
RESULTS_HELP = "Written by pytest --ddp-json=FILE; --ddp-report=DIR writes DIR/results.json."
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Budget = Annotated[str, typer.Option(metavar="TIME", help="How long to measure: 90s, 10m or 1h.")]
NoUserCode = Annotated[
    bool,
    typer.Option(NO_USER_CODE, help="Refuse suites with script:, env: or a workload of their own."),
]
BaselineDirectory = Annotated[
    Path, typer.Option("--baselines", metavar="DIR", help="The directory of baseline files.")
]
_METRICS = [metric.name for metric in METRICS]
_RECORDED = [*_METRICS, TYPICAL_STEP]
Metric = Annotated[
    str, typer.Option(metavar="NAME", callback=_recorded, help=f"One of {', '.join(_RECORDED)}.")
]
_ACKNOWLEDGED = [*_METRICS, *EXACT, *(metric.name for metric in TARGETS)]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        callback=_each_acknowledged,
        help=f"One of {', '.join(_ACKNOWLEDGED)}; may be repeated. [default: {STEP_TIME.name}]",
    ),
]
CurvesFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Results of pytest --ddp-json, or a baseline with or without published tables.",
    ),
]

# The result of a command, for people or for programs.


def print_result(value: object, blocks: Iterable[Block], *, as_json: bool) -> None:
    """Print a result as JSON, or as text for this terminal."""
    if as_json:
        typer.echo(to_json(value))
    else:
        show(blocks)


def show(blocks: Iterable[Block]) -> None:
    """Print blocks as text for this terminal."""
    typer.echo(text_of(blocks, shutil.get_terminal_size().columns))


# The end of every command: an exit code, and an error in one line.


_WHOLE = 1000  # characters: a line of help is wrapped, and never cut off


class CommandGroup(typer.core.TyperGroup):
    """The commands. An error that a user can correct is one line, not a traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the help where a command is missing.

        With `no_args_is_help` the help would be the message of an error, which is one line here.
        """
        if not args and not ctx.resilient_parsing:  # as while a shell completes
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
    option: str | None = getattr(error, "option_name", None)
    context: Any = getattr(error, "ctx", None)
    group = getattr(context, "parent", None)
    if group is not None and any(option in param.opts for param in group.command.params):
        right = f"{group.command_path} {option} … {context.info_name}"
        return f"{option} comes before the command: {right}"
    about: str | None = getattr(getattr(error, "param", None), "help", None)
    if not message.startswith("Missing argument") or not about:
        return message
    return f"{message.rstrip('.')}: {about[0].lower()}{about[1:]}"


def _refuse(message: str) -> ExitCode:
    typer.echo(f"ddp-perf: {printable(' '.join(message.split()))}", err=True)
    return ExitCode.USAGE


# Progress of a measurement with a time budget: a live bar on a terminal, else some lines.


_EVERY_S = 60.0  # between two lines, if stderr is not a terminal


def write_line(line: str) -> None:
    """Write a line on stderr, so that stdout contains only the result."""
    typer.echo(f"ddp-perf: {printable(line)}", err=True)


class BudgetProgress:
    """The part of a time budget that is spent, on a bar. The budget begins at once."""

    def __init__(self, bar: LiveBar, budget_s: float) -> None:
        self.until = time.monotonic() + budget_s
        self._budget_s = budget_s
        self._next_line = 0.0
        self._bar = bar
        bar.show(0, budget_s, f"{describe_duration(budget_s)} left")

    def launched(self, launches: int) -> None:
        """Show how many launches are done."""
        self.show(f"launch {launches} done")

    def show(self, done: str) -> None:
        """Show what is done, and the time that is left."""
        now = time.monotonic()
        left_s = max(0.0, self.until - now)
        text = f"{done}, {describe_duration(left_s)} left"
        self._bar.show(self._budget_s - left_s, self._budget_s, text)
        if not self._bar.is_possible and now >= self._next_line:
            write_line(text)
            self._next_line = now + _EVERY_S


def describe_progress(duel: Duel) -> str:
    """Return how many pairs are done, and the outcomes so far."""
    pairs = sum(len(case.pairs) for case in duel.cases)
    decided = Counter(case.outcome for case in duel.cases)
    undecided = decided.pop(DuelOutcome.UNDECIDED, 0)
    parts = [f"{number} {outcome.value}" for outcome, number in sorted(decided.items())]
    if undecided:
        parts.append(f"{undecided} undecided")
    launches = sum(len(case.aa) for case in duel.cases)
    done = counted(pairs, "pair") if pairs else f"calibration, {counted(launches, 'launch')}"
    return f"{done}: {', '.join(parts)}"


# Progress of a known number of launches: a live bar on a terminal, else a line for each.


class LaunchProgress:
    """The launches of a plan that are done, on a bar."""

    def __init__(self, bar: LiveBar, launches: int) -> None:
        self._launches = launches
        self._done = 0
        self._bar = bar
        bar.show(0, launches, f"launch 1 of {launches}")

    def launched(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        """Show how many launches are done, and the typical step of the newest one."""
        self._done += 1
        if isinstance(outcome, LaunchFailure):
            newest = "failed"
        else:
            newest = f"{milliseconds(outcome.typical_step_s)} ms a step"
        text = f"launch {self._done} of {self._launches}: {request.case.id}: {newest}"
        self._bar.show(self._done, self._launches, text)
        if not self._bar.is_possible:
            write_line(text)
