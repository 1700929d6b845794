"""``ddp-perf report RESULTS.json…``: the HTML report of earlier sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.cli.command import RESULTS_HELP
from ddp_perf.session.results_file import joined_results


def report(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS.json…", help=RESULTS_HELP)],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory of the files.")
    ] = Path("artifacts/report"),
    history: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Also show each case's sessions in this history."),
    ] = None,
) -> None:
    """Write the HTML report of a session, and its figures in the formats of other tools.

    Several files are one report, if each has other suites.

    pytest --ddp-report writes the same files when a session ends. Nothing is measured or judged
    again. The report also shows a self-test of the same machine in artifacts/selftest.

    \b
    Exit code:
      0  written
      4  usage: a file that cannot be read, or written
    """
    # Imported here: plotting takes half a second to import, and most commands do not need it.
    from ddp_perf.report.directory import PAGE, write_report
    from ddp_perf.report.source import (
        SELFTEST,
        ReportSource,
        audit_lines_for,
        curve_for,
        history_points_for,
    )

    file = joined_results(results)
    source = ReportSource(
        suites=file.suites,
        complete=file.complete,
        curve=curve_for(file.suites, SELFTEST),
        sessions=history_points_for(file.suites, history) if history is not None else {},
        audits=tuple(audit_lines_for(file.suites, history)) if history is not None else (),
    )
    session = write_report(output, source)
    typer.echo(f"{session.status.value}: {session.headline}")
    typer.echo(f"report: {output / PAGE}")
