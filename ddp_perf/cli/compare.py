"""``ddp-perf compare A.json B.json``: the rule of the gate, applied to two results files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.cli.group import ExitCode
from ddp_perf.cli.options import AsJson, FalseAlarmRate
from ddp_perf.report.terminal.comparison import comparison_json, comparison_text
from ddp_perf.session.compare_sessions import ComparedSession, compare_sessions
from ddp_perf.session.results_file import read_results


def compare(
    old: Annotated[Path, typer.Argument(metavar="A.json", help="The older session's results.")],
    new: Annotated[Path, typer.Argument(metavar="B.json", help="The session to judge.")],
    false_alarm_rate: FalseAlarmRate = 0.01,
    as_json: AsJson = False,
) -> None:
    """Judge results B against results A, both written by pytest --ddp-json.

    The rule is that of the pytest gate, with A as a baseline of one session.

    \b
    Exit code:
      0  pass: nothing is slower, and every case was compared
      1  regression: a slower or failed case, other work, or another structure
      2  undecided: inconclusive, suspect or invalid, or a case that is missing in one file
      4  usage: an argument, or a file that cannot be read or compared
    """
    comparison = compare_sessions(_read(old), _read(new), false_alarm_rate=false_alarm_rate)
    if as_json:
        typer.echo(comparison_json(comparison))
    else:
        typer.echo(comparison_text(comparison, shutil.get_terminal_size().columns))
    raise typer.Exit(ExitCode[comparison.conclusion.name])


def _read(path: Path) -> ComparedSession:
    results = read_results(path)
    return ComparedSession(name=str(path), complete=results.complete, suites=results.suites)
