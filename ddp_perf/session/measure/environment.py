"""The conditions of a measurement: this machine, and the versions that the ranks use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.core.environment import Environment
from ddp_perf.core.gpu import Gpu, GpuMachine
from ddp_perf.core.measurement import Measurement
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Runtime
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.gpu.gpus import NO_GPUS
from ddp_perf.system.gpu.torch_builds import misfit
from ddp_perf.system.host.host import current_commit
from ddp_perf.system.variables import training_variables


def describe_environment(
    capacity: Capacity,
    tier: Tier,
    runtime: Runtime,
    directory: Path,
    *,
    node: str | None = None,
    alike_nodes: int | None = None,
) -> Environment:
    """Describe the environment. ``directory`` is the checkout of the measured code.

    ``node`` is the launcher's name of the first node; None: there is one machine. Its host may have
    another name, or several. ``alike_nodes`` are as many that are measured one by one.
    """
    on_gpu = tier == "gpu"
    return Environment(
        accelerator=capacity.accelerator_name(tier),
        accelerator_key=capacity.accelerator_key(tier),
        accelerator_count=capacity.accelerator_count(tier),
        host=node or capacity.host.name,
        pool=None if on_gpu else capacity.pool,
        alike_nodes=alike_nodes,
        os=capacity.host.os,
        python=runtime.python,
        torch=runtime.torch,
        cuda=runtime.cuda if on_gpu else None,
        cudnn=runtime.cudnn if on_gpu else None,
        nccl=runtime.nccl if on_gpu else None,
        driver=capacity.machine.driver if on_gpu else None,
        blas=runtime.blas,
        commit=current_commit(directory),
        variables=training_variables(tier, os.environ),
        **_of_gpus(capacity.machine if on_gpu else NO_GPUS),
    )


def with_nodes(environment: Environment, measurements: Iterable[Measurement]) -> Environment:
    """Return the environment with the nodes and hosts of the launches, if they had several nodes.

    A cluster may give each launch other hosts, so only the launches show them.
    """
    across = [one for one in measurements if one.case.nodes > 1 and one.launches]
    hosts = {launch.hosts for one in across for launch in one.launches}
    return msgspec.structs.replace(
        environment,
        nodes=max((one.case.nodes for one in across), default=1),
        hosts=" ".join(sorted(set().union(*hosts))) or None,
    )


def check_runtime(tier: Tier, runtime: Runtime, machine: GpuMachine) -> None:
    """Refuse a torch that cannot use the machine's GPUs, before any rank is started.

    Raises LaunchError if torch is built without CUDA or NCCL, or for a CUDA version that the
    driver or a GPU cannot run.
    """
    if tier != "gpu":
        return
    if runtime.lacking is not None:
        raise LaunchError(
            f"torch {runtime.torch} is built without {runtime.lacking}, which the gpu tier needs:"
            " install a CUDA build of torch (pytorch.org/get-started), or run -m cpu"
        )
    if (reason := misfit(runtime.cuda, machine)) is not None:
        raise LaunchError(reason)


def _of_gpus(machine: GpuMachine) -> dict[str, Any]:
    """Return the fields of the GPUs; the weakest GPU decides, because each step waits for it."""
    gpus = machine.gpus
    persistence, ecc = _known(gpus, "persistence"), _known(gpus, "ecc")
    return {
        "interconnect": machine.interconnect,
        "links": " ".join(machine.slowest_links) or None,
        "gpu_memory": min(_known(gpus, "memory"), default=None),
        "power_limit_w": min(_known(gpus, "power_limit_w"), default=None),
        "sm_clock_mhz": min(_known(gpus, "sm_clock_mhz"), default=None),
        "persistence": all(persistence) if persistence else None,
        "ecc": any(ecc) if ecc else None,
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES") if gpus else None,
    }


def _known(gpus: Sequence[Gpu], name: str) -> list[Any]:
    return [value for gpu in gpus if (value := getattr(gpu, name)) is not None]
