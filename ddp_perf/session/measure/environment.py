"""The conditions of a measurement: this machine, and the versions that the ranks use."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.core.environment import Environment
from ddp_perf.core.gpu import GpuMachine, NodeHardware, link_slowness
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Measurement
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Runtime
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.gpu.gpus import NO_GPUS, hardware_of
from ddp_perf.system.gpu.torch_builds import mismatch
from ddp_perf.system.host.host import current_branch, current_commit
from ddp_perf.system.variables import LIBRARY_PATH, training_variables


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
        branch=current_branch(directory),
        variables=_variables(capacity, tier),
        **_of_gpus(capacity.machine if on_gpu else NO_GPUS),
    )


def _variables(capacity: Capacity, tier: Tier) -> dict[str, str]:
    """Return the variables of the ranks. Elsewhere they have their own path of libraries."""
    variables = training_variables(tier, os.environ)
    if capacity.node is not None:
        variables.pop(LIBRARY_PATH, None)
    return variables


def with_launches(environment: Environment, measurements: Iterable[Measurement]) -> Environment:
    """Return the environment with what only launches show.

    These are the nodes and hosts of launches on several nodes, since a cluster may give each launch
    other hosts; the state of the weakest of these nodes; the link of each GPU under load, and the
    transports of NCCL.
    """
    measured = [one for one in measurements if one.launches]
    launches = [launch for one in measured for launch in one.launches]
    across = [one for one in measured if one.case.nodes > 1]
    hosts = {launch.hosts for one in across for launch in one.launches}
    return msgspec.structs.replace(
        environment,
        nodes=max((one.case.nodes for one in across), default=1),
        hosts=" ".join(sorted(set().union(*hosts))) or None,
        pcie=_pcie(launches),
        transports=_transports(measured),
        **_weakest([state for launch in launches for state in launch.node_hardware]),
    )


def _pcie(launches: Sequence[LaunchResult]) -> str | None:
    """Return the link of each GPU of a node, as the first of its ranks: "4x16 3x8".

    A GPU that idles lowers its link, so the best reading of each counts. Of several nodes, the one
    with the slowest link does.
    """
    best: dict[tuple[str, int], tuple[int, int]] = {}  # by host and GPU
    for launch in launches:
        counts: Counter[int] = Counter()
        for rank in launch.ranks:
            node = rank.placement.node
            key = rank.placement.host, counts[node]
            counts[node] += 1
            if rank.load is not None and (link := rank.load.pcie) is not None:
                best[key] = max(best.get(key, link), link, key=_pcie_rate)
    local = {gpu for _, gpu in best}
    slowest = {
        gpu: min((one for (_, at), one in best.items() if at == gpu), key=_pcie_rate)
        for gpu in local
    }
    each = [slowest.get(gpu) for gpu in range(max(local, default=-1) + 1)]
    return " ".join("?" if one is None else f"{one[0]}x{one[1]}" for one in each) or None


def _pcie_rate(link: tuple[int, int]) -> int:
    generation, lanes = link
    return lanes << generation


def _transports(measured: Sequence[Measurement]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for one in measured:
        for launch in one.launches:
            if launch.transports:
                found.setdefault(one.case.ranks_text, set()).update(launch.transports)
    return {ranks: " ".join(sorted(names)) for ranks, names in found.items()}


def _weakest(states: Sequence[NodeHardware]) -> dict[str, Any]:
    """Return the fields of the weakest node: each step waits for it."""
    if not states:
        return {}
    weakest: dict[str, Callable[[list[Any]], Any]] = {
        "links": lambda each: _of_each_count(each, lambda names: max(names, key=link_slowness)),
        "peer_access": lambda each: _of_each_count(each, lambda words: min(words, key=_ACCESS)),
        "gpu_memory": min,
        "power_limit_w": min,
        "sm_clock_mhz": min,
        "persistence": all,
        "ecc": any,
        "networks": lambda each: "; ".join(sorted(set(each))),
    }
    known = {
        name: [v for one in states if (v := getattr(one, name)) is not None] for name in weakest
    }
    return {name: weakest[name](values) for name, values in known.items() if values}


_ACCESS = ("no", "?", "yes").index


def _of_each_count(texts: Sequence[str], choose: Callable[[tuple[str, ...]], str]) -> str:
    """Choose among the words of several nodes for the first 2, 3, … GPUs each."""
    return " ".join(choose(words) for words in zip(*map(str.split, texts), strict=False))


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
    if (reason := mismatch(runtime.cuda, machine)) is not None:
        raise LaunchError(reason)


def _of_gpus(machine: GpuMachine) -> dict[str, Any]:
    mask = os.environ.get("CUDA_VISIBLE_DEVICES") if machine.gpus else None
    state = msgspec.structs.asdict(hardware_of(machine))
    return {**state, "interconnect": machine.interconnect, "cuda_visible_devices": mask}
