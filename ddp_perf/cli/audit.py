"""``ddp-perf audit [FILE…]``: contradictions among the figures of baseline files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.command import AsJson
from ddp_perf.core.exit_code import ExitCode
from ddp_perf.errors import BaselineError
from ddp_perf.report.terminal.audit import Audit, audit_json, audit_text
from ddp_perf.stats.audit.measured import CasesAudit, audit_cases
from ddp_perf.stats.plausibility import TableAudit, audit_table


def audit(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE…]", help="Baseline files (default: all in baselines/)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every figure by arithmetic, and report each contradiction.

    A published figure that contradicts another one of its table is not used by the gate. Measured
    figures are compared with each other, and with the peak rates of the GPU and of its link.

    \b
    Exit code:
      0  no contradiction
      1  contradictions, each with both figures
      4  usage: a file that cannot be read
    """
    paths = files or sorted(Path("baselines").glob("*.json"))
    if not paths:
        raise BaselineError("baselines: there is no baseline file here; name one")
    tables: list[TableAudit] = []
    measured: list[CasesAudit] = []
    for path in paths:
        if not path.is_file():
            raise BaselineError(f"{path}: no such file")
        baseline = BaselineStore(path.parent).load(path.stem)
        tables += [
            TableAudit(file=str(path), table=table, contradictions=tuple(audit_table(table)))
            for table in baseline.published
        ]
        if baseline.cases:
            found = tuple(audit_cases(baseline))
            cases = len(baseline.cases)
            measured.append(CasesAudit(file=str(path), cases=cases, contradictions=found))
    audit = Audit(tables=tuple(tables), measured=tuple(measured))
    typer.echo(audit_json(audit) if as_json else audit_text(audit))
    raise typer.Exit(ExitCode.RED if audit.contradictions else ExitCode.GREEN)
