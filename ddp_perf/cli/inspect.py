"""``ddp-perf doctor``: this machine, what it can gate, and what disturbs a measurement."""

from __future__ import annotations

import contextlib
import os

import typer

from ddp_perf.cli.command import AsJson
from ddp_perf.core.exit_code import ExitCode
from ddp_perf.errors import LaunchError
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.launch.launcher import Runtime
from ddp_perf.report.terminal.doctor import (
    Diagnosis,
    abilities,
    diagnosis_json,
    diagnosis_text,
    torch_spoilers,
)
from ddp_perf.system.checks import Spoiler, gpu_spoilers, host_spoilers, variable_spoilers
from ddp_perf.system.gpu.gpus import find_gpus
from ddp_perf.system.gpu.nvml import NvmlReader
from ddp_perf.system.gpu.reader import GpuReader
from ddp_perf.system.gpu.xid import find_xids
from ddp_perf.system.host.host_state import read_host_state
from ddp_perf.system.host.launch_platform import LAUNCH_REMEDY, launch_obstacle


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
    typer.echo(diagnosis_json(diagnosis) if as_json else diagnosis_text(diagnosis))
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
    with contextlib.closing(ForkserverLauncher()) as launcher:
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
    return Spoiler(what=str(error), remedy="check that torch can be imported")
