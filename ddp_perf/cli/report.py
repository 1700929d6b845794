"""``ddp-perf report RESULTS.json``: the page and its files, of a session that is over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.session.results_file import read_results


def report(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS.json", help="Written by pytest --ddp-json.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the files go.")
    ] = Path("artifacts/report"),
    history: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Show each case's sessions of this history, too."),
    ] = None,
) -> None:
    """Write the HTML report of a session, and its figures in other tools' formats.

    What pytest --ddp-report writes when a session ends; nothing is measured or judged again.
    A self-test in artifacts/selftest of the same machine is shown, too.

    \b
    Exit code:
      0  written
      4  usage: a file that cannot be read, or written
    """
    # Here, since drawing takes half a second that no other command need pay.
    from ddp_perf.report.directory import PAGE, write_report
    from ddp_perf.report.source import SELFTEST, ReportSource, curve_for, history_points_for

    file = read_results(results)
    source = ReportSource(
        suites=file.suites,
        complete=file.complete,
        curve=curve_for(file.suites, SELFTEST),
        sessions=history_points_for(file.suites, history) if history is not None else {},
    )
    session = write_report(output, source)
    typer.echo(f"{session.status.value}: {session.headline}")
    typer.echo(f"report: {output / PAGE}")
