"""``ddp-perf audit [FILE…]``: do the published figures of a baseline file agree?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.group import ExitCode
from ddp_perf.errors import BaselineError
from ddp_perf.report.audit import audit_json, audit_text
from ddp_perf.stats.audit import TableAudit, audit_table


def audit(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE…]", help="Baseline files (default: all of baselines/)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Check the arithmetic of every published figure, and report each contradiction.

    A figure that contradicts another of its table cannot gate. Measured baselines are made by
    the suite itself; reading the file checks them.

    \b
    Exit code:
      0  no contradiction
      1  contradictions, each with both figures
      4  usage: a file that cannot be read
    """
    paths = files or sorted(Path("baselines").glob("*.json"))
    if not paths:
        raise BaselineError("baselines: no baseline file here; name one")
    audits = []
    for path in paths:
        if not path.is_file():
            raise BaselineError(f"{path}: no such file")
        baseline = BaselineStore(path.parent).load(path.stem)
        audits += [
            TableAudit(file=str(path), table=table, contradictions=tuple(audit_table(table)))
            for table in baseline.published
        ]
    typer.echo(audit_json(audits) if as_json else audit_text(audits))
    wrong = any(audit.contradictions for audit in audits)
    raise typer.Exit(ExitCode.REGRESSION if wrong else ExitCode.PASS)
