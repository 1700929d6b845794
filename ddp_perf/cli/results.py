"""``ddp-perf judge RESULTS.json…``: results files judged by stored baselines, oldest first."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.command import RESULTS_HELP, AsJson, BaselineDirectory
from ddp_perf.core.metric import METRICS, gated_metrics
from ddp_perf.errors import did_you_mean
from ddp_perf.report.terminal.judged_series import series_json, series_text
from ddp_perf.session.gate.judge_again import with_tolerances
from ddp_perf.session.judge_results import RecordedSession, judge_results
from ddp_perf.session.results_file import read_results


def judge(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULTS.json…", help=RESULTS_HELP),
    ],
    directory: BaselineDirectory = Path("baselines"),
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Store each session after it is judged, as pytest --save-baseline=append does, so"
            " that it judges the later ones. Without this option nothing is written.",
        ),
    ] = False,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=FRACTION",
            help="Use this tolerance in each case that gates the metric, as in step_time=0.03; may"
            " be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge results files by the stored baselines, oldest first, without measuring.

    Each session is judged by the stored sessions that are older. With --append into an empty
    directory, or into a copy of an earlier state, the series is replayed as it was measured.

    \b
    Exit code:
      0  pass: no session has a regression, and the newest one of each suite passed
      1  regression: in any session a slower case or a missed target that is not acknowledged, a
         failed case, other work or another machine, or more work in a step
      4  usage: an argument, or a file that cannot be read or stored; nothing is written
      75  undecided: so is the newest session, or it is suspect, invalid, without a baseline, or
         slower as acknowledged
    """
    tolerances = _parse_tolerances(tolerance or [])
    sessions = list(_read(results))
    _check_gated(tolerances, sessions)
    series = judge_results(
        [_tolerant(session, tolerances) for session in sessions],
        BaselineStore(directory),
        append_each=append,
    )
    if as_json:
        typer.echo(series_json(series, tolerances))
    else:
        typer.echo(series_text(series, tolerances, shutil.get_terminal_size().columns))
    raise typer.Exit(series.conclusion.exit_code)


def _read(paths: Iterable[Path]) -> Iterator[RecordedSession]:
    for path in paths:
        file = read_results(path)
        if not file.suites:
            typer.echo(f"ddp-perf: {path}: nothing was measured", err=True)
        for suite in file.suites:
            yield RecordedSession(file=str(path), complete=file.complete, result=suite)


def _tolerant(session: RecordedSession, tolerances: dict[str, float]) -> RecordedSession:
    return RecordedSession(
        file=session.file,
        complete=session.complete,
        result=with_tolerances(session.result, tolerances),
    )


def _parse_tolerances(texts: Iterable[str]) -> dict[str, float]:
    """Return the tolerance of each named metric."""
    known = [metric.name for metric in METRICS]
    tolerances: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            raise typer.BadParameter(
                f"--tolerance {text}: {name!r} is not one of {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )
        if name in tolerances:
            raise typer.BadParameter(f"--tolerance {text}: {name} is there twice")
        tolerances[name] = _fraction(text, value)
    return tolerances


def _fraction(text: str, value: str) -> float:
    try:
        fraction = float(value)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction < 1:
        raise typer.BadParameter(
            f"--tolerance {text}: {value!r} is not a fraction between 0 and 1, as in step_time=0.03"
        )
    return fraction


def _check_gated(tolerances: Iterable[str], sessions: Iterable[RecordedSession]) -> None:
    measurements = [m for session in sessions for m in session.result.measurements.values()]
    gated = {metric for measured in measurements for metric in gated_metrics(measured.case)}
    for metric in tolerances:
        if metric not in gated:
            raise typer.BadParameter(f"--tolerance {metric}: no case of these files gates it")
