"""The capacity of this machine: the cases that it can run, by its GPUs, cores and packages."""

from __future__ import annotations

import importlib.util

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.gpu import GpuMachine
from ddp_perf.core.models import PACKAGES
from ddp_perf.render.units import counted
from ddp_perf.system.gpu.gpus import accelerator_slug, find_gpus
from ddp_perf.system.host.host import allowed_cores, cpu_name, cpu_slug

_AMPERE = (8, 0)  # the first compute capability with bf16 and TF32 in hardware
_NEEDS_AMPERE = ("bf16", "tf32")


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a session: the visible GPUs and the number of allowed cores."""

    machine: GpuMachine
    cores: int
    pool: str | None = None  # of like hosts, which --ddp-machine names

    def obstacle(self, case: Case) -> str | None:
        """Return why the case cannot run here, or None if it can."""
        if case.tier == "gpu" and case.world_size > len(self.machine.gpus):
            found = f"found {len(self.machine.gpus)}"
            if self.machine.problem:
                found += f" (NVML: {self.machine.problem})"
            return f"needs {counted(case.world_size, 'CUDA device')}, {found}"
        if case.tier == "gpu" and case.precision in _NEEDS_AMPERE:
            return self._too_old(case)
        cores = case.world_size * case.threads_per_rank
        if case.tier == "cpu" and cores > self.cores:
            needed = f"{counted(cores, 'core')}, {case.threads_per_rank} per rank"
            return f"needs {needed}, found {self.cores}"
        package = PACKAGES.get(case.workload)
        if package is not None and importlib.util.find_spec(package) is None:
            return f"{case.workload} needs {package}: pip install transformers"
        return None

    def _too_old(self, case: Case) -> str | None:
        for gpu in self.machine.gpus[: case.world_size]:
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
        return accelerator_slug(self.machine) if tier == "gpu" else cpu_slug(self.pool)

    def accelerator_name(self, tier: str) -> str:
        return self.machine.name if tier == "gpu" else cpu_name()

    def accelerator_count(self, tier: str) -> int:
        return len(self.machine.gpus) if tier == "gpu" else self.cores


def find_capacity() -> Capacity:
    """Return the capacity of this machine, from NVML and the scheduler, without torch."""
    return Capacity(machine=find_gpus(), cores=len(allowed_cores()))
