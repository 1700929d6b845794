"""``ddp-perf compare``: the rule of the gate, for results files of two states of the code."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.command import AsJson, BaselineDirectory, FalseAlarmRate
from ddp_perf.core.exit_code import ExitCode
from ddp_perf.report.terminal.comparison import comparison_json, comparison_text
from ddp_perf.report.terminal.machines import machines_json, machines_text
from ddp_perf.scaling.machines import side_by_side
from ddp_perf.session.compare_sessions import compare_sessions
from ddp_perf.session.compared_side import ComparedSession, one_side
from ddp_perf.session.other_machine import machine_differences
from ddp_perf.session.results_file import read_results

_BETWEEN = "vs"


def compare(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="OLD.json… [vs] NEW.json…",
            help="Results of the older code, then of the newer one, each written by pytest"
            " --ddp-json. Write vs between several of each.",
        ),
    ],
    false_alarm_rate: FalseAlarmRate = 0.01,
    directory: BaselineDirectory = Path("baselines"),
    as_json: AsJson = False,
) -> None:
    """Judge results of newer code by results of older code, both of one machine.

    One file of each side: ddp-perf compare main.json branch.json. Several sessions of each side
    show how sessions differ, and so find smaller slow-downs; measure the sides in turn:
    ddp-perf compare main.json main-2.json vs branch.json branch-2.json

    Results of two machines (other GPUs, another link, another host) are set side by side, without
    a verdict.

    \b
    Exit code:
      0  pass: nothing is slower, and every case was compared
      1  regression: a slower or failed case, other work, or another structure
      4  usage: an argument, or files that cannot be read or compared
      75  undecided, suspect or invalid, a case that is missing in one file, or
         two machines
    """
    old, new = (one_side(_read(paths)) for paths in _sides(files))
    if differences := machine_differences(old, new):
        found = side_by_side(old, new, differences, BaselineStore(directory))
        width = shutil.get_terminal_size().columns
        typer.echo(machines_json(found) if as_json else machines_text(found, width))
        raise typer.Exit(ExitCode.UNDECIDED)
    comparison = compare_sessions(old, new, false_alarm_rate=false_alarm_rate)
    if as_json:
        typer.echo(comparison_json(comparison))
    else:
        typer.echo(comparison_text(comparison, shutil.get_terminal_size().columns))
    raise typer.Exit(comparison.conclusion.exit_code)


def _sides(files: Sequence[Path]) -> tuple[Sequence[Path], Sequence[Path]]:
    """Return the files before and after "vs", which may be left out between two files."""
    names = [str(file) for file in files]
    places = [place for place, name in enumerate(names) if name == _BETWEEN]
    if not places and len(files) == 2:
        return files[:1], files[1:]
    if len(places) == 1 and 0 < places[0] < len(files) - 1:
        return files[: places[0]], files[places[0] + 1 :]
    raise typer.BadParameter(
        f"{' '.join(names)}: which files are older, and which newer? Write: ddp-perf compare"
        f" OLD.json… {_BETWEEN} NEW.json…"
    )


def _read(paths: Sequence[Path]) -> list[ComparedSession]:
    sessions = []
    for path in paths:
        results = read_results(path)
        sessions.append(
            ComparedSession(name=str(path), complete=results.complete, suites=results.suites)
        )
    return sessions
