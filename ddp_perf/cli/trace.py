"""``ddp-perf trace FILE…``: the use of time in traces of torch.profiler."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.cli.command import AsJson
from ddp_perf.traces.analysis import analyse_traces
from ddp_perf.traces.text import trace_json, trace_text


def trace(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Chrome traces, .json or .json.gz, one per rank."),
    ],
    as_json: AsJson = False,
) -> None:
    """Analyse traces that torch.profiler exported from any run, of several ranks together.

    The report shows computation, communication, memory and idle time of each rank; the overlap
    ratio and the exposed communication of each step; the longest kernels and collectives; and the
    straggler, the rank that the others wait for.

    \b
    Exit code:
      0  analysed
      4  usage: a file that is not a trace, or two files of one rank
    """
    analysis = analyse_traces(files)
    if as_json:
        typer.echo(trace_json(analysis))
    else:
        typer.echo(trace_text(analysis, shutil.get_terminal_size().columns))
