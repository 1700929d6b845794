"""``ddp-perf plan --fleet FILE``: how a fleet is gated every night, and what that finds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.core.exit_code import ExitCode
from ddp_perf.errors import ResultsError
from ddp_perf.plan.fleet_file import read_fleet
from ddp_perf.plan.schedule import Planner
from ddp_perf.plan.text import fleet_plan_json, fleet_plan_text
from ddp_perf.system.files import replace_file


def plan_fleet(
    fleet: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="YAML: the nodes, the cases and their noise, and what must be found.",
        ),
    ],
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the plan as JSON, too.")
    ] = None,
) -> None:
    """Plan how a fleet is gated every night: nodes, world sizes, GPU-minutes, cost, what is found.

    The plan is computed from the formulas of the judge. Nothing is launched.

    \b
    Exit code:
      0  what FILE asks for is found, within its GPU-minutes and false alarms
      4  usage: an argument, or a file that cannot be read
      75  undecided: not all of it; the plan states what it would take
    """
    found = Planner(read_fleet(fleet)).plan()
    typer.echo(fleet_plan_text(found, shutil.get_terminal_size().columns))
    if json is not None:
        try:
            replace_file(json, f"{fleet_plan_json(found)}\n".encode())
        except OSError as error:
            raise ResultsError(f"{json}: cannot be written: {error.strerror}") from None
        typer.echo(f"\nwritten: {json}")
    raise typer.Exit(ExitCode.UNDECIDED if found.missed else ExitCode.GREEN)
