"""Commands that look at this machine or at files: ``doctor``, ``audit`` and ``trace``."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.command import AsJson, print_result
from ddp_perf.errors import BaselineError, ExitCode, LaunchError
from ddp_perf.launch.interpreter import install_command, missing_here
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.report.commands.baseline import Audit, audit_lines
from ddp_perf.report.commands.doctor import (
    Diagnosis,
    abilities,
    diagnosis_parts,
    torch_spoilers,
)
from ddp_perf.stats.plausibility import TableAudit, audit_table
from ddp_perf.stats.stored_figures import CasesAudit, audit_cases
from ddp_perf.system.checks import Spoiler, gpu_spoilers, host_spoilers, variable_spoilers
from ddp_perf.system.gpu.gpus import GpuReader, find_gpus, find_xids
from ddp_perf.system.gpu.nvml import NvmlReader
from ddp_perf.system.host.host import read_host_state
from ddp_perf.system.host.launch_platform import LAUNCH_REMEDY, launch_obstacle
from ddp_perf.traces.analysis import analyse_traces
from ddp_perf.traces.text import trace_parts

# ``ddp-perf doctor``: this machine, what it can gate, and what disturbs a measurement.


def doctor(
    as_json: AsJson = False,
) -> None:
    """Check this machine: its GPUs and their links, its host, and the torch that ranks use.

    The command measures nothing and changes nothing. Run it while nothing else runs.

    \b
    Exit code:
      0  fit: nothing here would disturb a measurement
      1  something would, listed with its remedy
      4  usage
    """
    diagnosis = diagnose(NvmlReader())
    print_result(diagnosis, diagnosis_parts(diagnosis), as_json=as_json)
    raise typer.Exit(ExitCode.RED if diagnosis.spoilers else ExitCode.GREEN)


def diagnose(reader: GpuReader) -> Diagnosis:
    """Read the state of the GPUs, the kernel, and the torch that a forkserver imports."""
    host = read_host_state()  # before the forkserver puts load on the machine
    machine = find_gpus(reader=reader)
    health = reader.health(machine.gpus)
    spoilers = [*gpu_spoilers(machine, health, host.cores), *host_spoilers(host)]
    spoilers += variable_spoilers(os.environ, has_gpus=bool(machine.gpus))
    spoilers += [
        Spoiler(what=f"the kernel's log has {xid}", remedy="see NVIDIA's list of Xid errors")
        for xid in find_xids()
    ]
    runtime: Runtime | None = None
    with contextlib.closing(ServerLauncher()) as launcher:
        try:
            runtime = launcher.runtime()
        except LaunchError as error:
            spoilers.append(_launch_spoiler(error))
    if machine.gpus and runtime is not None:
        spoilers += torch_spoilers(runtime, machine)
    return Diagnosis(
        host=host,
        machine=machine,
        health=health,
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        runtime=runtime,
        abilities=tuple(abilities(machine, host, runtime)),
        spoilers=tuple(spoilers),
    )


def _launch_spoiler(error: LaunchError) -> Spoiler:
    obstacle = launch_obstacle()
    if obstacle is not None:
        return Spoiler(what=obstacle, remedy=LAUNCH_REMEDY)
    if missing := missing_here():
        what = f"this Python lacks what ranks need: {', '.join(missing)}"
        return Spoiler(what=what, remedy=install_command(missing))
    return Spoiler(what=str(error), remedy="check that torch can be imported")


# ``ddp-perf audit [FILE…]``: contradictions among the figures of baseline files.


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
    print_result(audit, audit_lines(audit), as_json=as_json)
    raise typer.Exit(ExitCode.RED if audit.contradictions else ExitCode.GREEN)


# ``ddp-perf trace FILE…``: the use of time in traces of torch.profiler.


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
    print_result(analysis, trace_parts(analysis), as_json=as_json)
