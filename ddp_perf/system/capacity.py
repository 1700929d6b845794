"""The capacity of a machine: the cases that it can run, by its GPUs, cores and packages."""

from __future__ import annotations

import importlib.util

import msgspec

from ddp_perf.core.case import Case, Tier
from ddp_perf.core.gpu import GpuMachine
from ddp_perf.core.subject import PACKAGES
from ddp_perf.errors import GpuError
from ddp_perf.render.units import counted
from ddp_perf.system.gpu.gpus import accelerator_slug, find_gpus
from ddp_perf.system.host.host import Host, allowed_cores, cpu_slug, this_host

_AMPERE = (8, 0)  # the first compute capability with bf16 and TF32 in hardware
_NEEDS_AMPERE = ("bf16", "tf32")


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a session: the visible GPUs and the number of allowed cores."""

    machine: GpuMachine
    cores: int
    pool: str | None = None  # of like hosts, which --ddp-machine names
    nodes: int = 1  # that a launch may have, each like this machine
    each_node: bool = False  # each of several nodes is measured by itself: a case has one
    node: Host | None = None  # where the ranks run; None: on this machine

    @property
    def host(self) -> Host:
        """The machine on which the ranks run, or the first one."""
        return self.node or this_host()

    def obstacle(self, case: Case) -> str | None:
        """Return why the case cannot run here, or None if it can."""
        if self.each_node and case.nodes > 1:
            return f"needs {case.nodes} nodes at once, and each_node measures one by one"
        if lacking := self._lacking(case):
            return lacking
        if (too_old := self._too_old(case)) is not None:
            return too_old
        return missing_package(case) if self.node is None else None

    def fits(self, case: Case) -> bool:
        """Return whether the machine is large and new enough for it, whatever is installed."""
        return self._lacking(case) is None and self._too_old(case) is None

    def is_too_old(self, case: Case) -> bool:
        """Return whether the type of GPU lacks the precision of the case."""
        return self._too_old(case) is not None

    def _lacking(self, case: Case) -> str | None:
        """Return what the case needs on its nodes and what was found, or None if it is enough."""
        if case.tier == "gpu":
            needed, found = case.run_per_node, len(self.machine.gpus)
            what, each, remark = counted(needed, "CUDA device"), "", ""
            if self.machine.problem and found < needed:
                remark = f" (NVML: {self.machine.problem})"
        else:
            needed, found = case.run_per_node * case.threads_per_rank, self.cores
            what, each, remark = counted(needed, "core"), f", {case.threads_per_rank} per rank", ""
        if found >= needed and self.nodes >= case.nodes:
            return None
        if case.nodes == 1:
            return f"needs {what}{each}, found {found}{remark}"
        options = "nproc_per_node of --ddp-cluster"
        if self.nodes < case.nodes:
            options = "nnodes of --ddp-cluster"
        here = f"{counted(self.nodes, 'node')} with {found}{remark}"
        return f"needs {case.nodes} nodes with {what} on each{each}, found {here}: {options}"

    def _too_old(self, case: Case) -> str | None:
        if case.tier == "cpu" or case.precision not in _NEEDS_AMPERE:
            return None
        for gpu in self.machine.gpus[: case.run_per_node]:
            if gpu.compute_capability < _AMPERE:
                needed, found = (
                    f"{major}.{minor}" for major, minor in (_AMPERE, gpu.compute_capability)
                )
                return (
                    f"{case.precision} needs compute capability {needed},"
                    f" found {found} ({gpu.name})"
                )
        return None

    def accelerator_key(self, tier: str) -> str:
        """Return the name of the baseline file of a tier on this machine, without its suffix.

        A GPU's is its type, which all hosts share: a pool does not change it.
        """
        return accelerator_slug(self.machine) if tier == "gpu" else cpu_slug(self.pool, self.node)

    def accelerator_name(self, tier: str) -> str:
        return self.machine.name if tier == "gpu" else self.host.cpu

    def accelerator_count(self, tier: str) -> int:
        return len(self.machine.gpus) if tier == "gpu" else self.cores


def tier_of(machine: GpuMachine, *, meant: str) -> Tier:
    """Return the tier that is measured here if nobody states one: that of the GPUs, if any.

    Raises GpuError if there may be GPUs that cannot be read: a broken driver must not turn a gate
    of GPUs into one of CPUs. ``meant`` is how to state that the CPU tier is meant.
    """
    if machine.gpus:
        return "gpu"
    if machine.problem is None:
        return "cpu"
    raise GpuError(
        f"the GPUs cannot be read (NVML: {machine.problem}): fix the driver, or state {meant} if"
        " the CPU tier is meant"
    )


def missing_package(case: Case) -> str | None:
    """Return which package the case's workload lacks here, with the command; else None."""
    package = PACKAGES.get(case.workload)
    if package is None or importlib.util.find_spec(package) is not None:
        return None
    return f"{case.workload} needs {package}: pip install transformers"


def find_capacity() -> Capacity:
    """Return the capacity of this machine, from NVML and the scheduler, without torch."""
    return Capacity(machine=find_gpus(), cores=len(allowed_cores()))


def named(capacity: Capacity, node: str) -> Capacity:
    """Return a capacity under the name of its node: that of a container changes every time."""
    return msgspec.structs.replace(capacity, node=msgspec.structs.replace(capacity.host, name=node))
