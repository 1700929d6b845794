"""``ddp-perf trace FILE…``: where the time went, by torch.profiler's traces."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.cli.options import AsJson
from ddp_perf.traces.analysis import analyse_traces
from ddp_perf.traces.text import trace_json, trace_text


def trace(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Chrome traces, .json or .json.gz, one a rank."),
    ],
    as_json: AsJson = False,
) -> None:
    """Analyse traces that torch.profiler exported, of any run: several ranks at once.

    Computation, communication, memory and idle time of each rank; how much of the communication
    computation hides, and what of it is exposed, step by step; the kernels and collectives that
    took longest; which rank the others wait for.

    \b
    Exit code:
      0  analysed
      4  usage: a file that is no trace, or two files of one rank
    """
    analysis = analyse_traces(files)
    if as_json:
        typer.echo(trace_json(analysis))
    else:
        typer.echo(trace_text(analysis, shutil.get_terminal_size().columns))
