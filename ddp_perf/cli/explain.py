"""``ddp-perf explain RESULTS.json``: the time of each case by its parts, and advice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.cli.command import RESULTS_HELP
from ddp_perf.render.tables import wrapped
from ddp_perf.report.terminal.explanation import explanation_lines
from ddp_perf.report.terminal.nodes import node_lines
from ddp_perf.report.terminal.step_terms import advice_lines, decomposition_table, rank_lines
from ddp_perf.report.terminal.table import headline
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.results_file import read_results


def explain(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.json", help=RESULTS_HELP)],
) -> None:
    """Explain where the time of each case goes, why it became slower, and what would help.

    The results file already contains all of this. Nothing is measured again.
    """
    width = shutil.get_terminal_size().columns
    for suite in read_results(results).suites:
        typer.echo("\n".join([headline(suite), *_lines(suite, width), ""]))


def _lines(suite: SuiteResult, width: int) -> list[str]:
    if not suite.trains:
        return ["this suite measures collectives: their steps have no parts"]
    table = decomposition_table(suite, width)
    if table is None:
        return ["no launch profiled its steps; measure again with this version of ddp-perf"]
    lines = [table]
    for case_id in suite.summaries:
        why = suite.explanations.get(case_id)
        lines_of_case = [
            *(explanation_lines(why) if why else ()),
            *rank_lines(suite, case_id),
            *node_lines(suite, case_id),
            *advice_lines(suite, case_id),
        ]
        lines += ["", case_id, *wrapped(lines_of_case, width)] if lines_of_case else []
    return lines
