"""The facts of a node, by which nodes are compared before the first launch."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.core.gpu import NodeHardware
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.gpu.gpus import NO_GPUS, find_gpus, hardware_of
from ddp_perf.system.host.host import cpu_name, this_host


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its software and its hardware, as far as the tier uses it."""

    torch: str | None  # None: it is not installed there
    cuda: str | None
    driver: str | None  # of the GPUs
    accelerator: str  # the model of the GPUs, or of the processor
    gpus: int
    hardware: NodeHardware | None = None  # of its GPUs; None: on the CPU tier
    capacity: Capacity  # what a driver elsewhere cannot read


def read_facts(tier: Tier) -> NodeFacts:
    """Return the facts of this node. On the CPU tier its GPUs are left out."""
    # psutil is imported where facts are read, and not by a driver that collects tests.
    from ddp_perf.system.host.network import rdma_networks

    machine = find_gpus() if tier == "gpu" else NO_GPUS
    torch, cuda = _torch_versions()
    return NodeFacts(
        torch=torch,
        cuda=cuda,
        driver=machine.driver,
        accelerator=machine.name if tier == "gpu" else cpu_name(),
        gpus=len(machine.gpus),
        hardware=hardware_of(machine, rdma_networks()) if tier == "gpu" else None,
        capacity=msgspec.structs.replace(find_capacity(), node=this_host()),
    )


def _torch_versions() -> tuple[str | None, str | None]:
    """Return the versions of the torch that is installed, and of its CUDA."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None, None
    versions = runpy.run_path(str(Path(found.origin).with_name("version.py")))
    return versions["__version__"], versions["cuda"]


def describe_difference(first: NodeFacts, other: NodeFacts, names: tuple[str, str]) -> str | None:
    """Return in which fact two nodes differ that must be alike, or None if they are alike.

    ``names``: of the nodes.
    """
    for field in ("torch", "cuda", "accelerator", "driver", "gpus"):
        mine, theirs = getattr(first, field), getattr(other, field)
        if mine != theirs:
            return (
                f"the nodes differ in {_WORDS[field]}: {names[0]} has {mine}, {names[1]} has"
                f" {theirs}; ranks that train together need the same"
            )
    return None


_WORDS = {
    "torch": "torch",
    "cuda": "torch's CUDA",
    "accelerator": "their GPUs or processors",
    "driver": "the driver of the GPUs",
    "gpus": "the number of GPUs",
}
