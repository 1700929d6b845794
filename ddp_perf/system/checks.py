"""What would spoil a measurement here, each with its remedy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.gpu import Gpu, GpuHealth, GpuMachine
from ddp_perf.errors import LeaseError
from ddp_perf.system.host.host_state import HostState
from ddp_perf.system.lease import lease_directory

_GIB = 2**30
_LIMITED = 0.99  # of the default power limit: less is a limit that somebody set
_IDLE_MEMORY = _GIB  # more is in use than a driver takes for itself
_LEAST_SHARED_MEMORY = _GIB // 2  # Docker gives 64 MiB, and NCCL fails with it
_BUSY = 0.1  # of the cores, at least half a process: somebody else computes


class Spoiler(msgspec.Struct, frozen=True, kw_only=True):
    """One thing, and what to do about it."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def gpu_spoilers(
    machine: GpuMachine, health: Sequence[GpuHealth], allowed: Sequence[int]
) -> Iterator[Spoiler]:
    """Of the GPUs, while nothing of ours runs on them. ``allowed``: cores of this process."""
    if machine.problem:
        yield Spoiler(what=f"NVML: {machine.problem}", remedy="see nvidia-smi and dmesg")
    now = {one.uuid: one for one in health}
    for gpu in machine.gpus:
        yield from _of_settings(gpu)
        yield from _of_health(gpu, now.get(gpu.uuid, GpuHealth(uuid=gpu.uuid)))
        if gpu.cores and not set(gpu.cores) & set(allowed):
            yield Spoiler(
                what=f"GPU {gpu.index}: this process may not use any core near it",
                remedy="allow some (taskset, docker --cpuset-cpus, Slurm's --gpu-bind)",
            )
    yield from _of_all(machine)


def _of_settings(gpu: Gpu) -> Iterator[Spoiler]:
    where, command = f"GPU {gpu.index}", f"nvidia-smi -i {gpu.index}"
    if gpu.persistence is False:
        yield Spoiler(
            what=f"{where}: persistence is off, so the driver loads anew for each launch",
            remedy=f"{command} -pm 1",
        )
    limit, default = gpu.power_limit_w, gpu.power_default_w
    if limit and default and limit < _LIMITED * default:
        yield Spoiler(
            what=f"{where}: power limit {limit:.0f} W, by default {default:.0f} W",
            remedy=f"{command} -pl {default:.0f}",
        )
    clock, usual = gpu.sm_clock_mhz, gpu.sm_clock_default_mhz
    if clock and usual and clock < usual:
        yield Spoiler(
            what=f"{where}: clock set to {clock} MHz, by default {usual} MHz",
            remedy=f"{command} -rac",
        )


def _of_health(gpu: Gpu, now: GpuHealth) -> Iterator[Spoiler]:
    where = f"GPU {gpu.index}"
    if now.throttle:
        yield Spoiler(
            what=f"{where}: its clocks are held down by {', '.join(now.throttle)}",
            remedy="see nvidia-smi -q -d PERFORMANCE; cool it, feed it, free its limits",
        )
    for process in now.processes or ():
        memory = f" with {process.memory / _GIB:.1f} GiB" if process.memory else ""
        yield Spoiler(
            what=f"{where}: process {process.pid} computes on it{memory}",
            remedy="wait for it, or end it",
        )
    if not now.processes and (now.memory_used or 0) > _IDLE_MEMORY:
        yield Spoiler(
            what=f"{where}: {(now.memory_used or 0) / _GIB:.1f} GiB are in use, by whom is not"
            " seen from here",
            remedy="look from outside this container (nvidia-smi)",
        )
    if now.pcie_width and gpu.pcie_width_max and now.pcie_width < gpu.pcie_width_max:
        yield Spoiler(
            what=f"{where}: PCIe runs on {now.pcie_width} of {gpu.pcie_width_max} lanes",
            remedy="reseat the card; see the slot's wiring and the firmware's settings",
        )
    if now.ecc_uncorrected:
        yield Spoiler(
            what=f"{where}: {now.ecc_uncorrected} memory errors that ECC could not correct",
            remedy=f"nvidia-smi -i {gpu.index} -q -d ECC; reset or replace it",
        )


def _of_all(machine: GpuMachine) -> Iterator[Spoiler]:
    gpus = machine.gpus
    readings: dict[str, Callable[[Gpu], object]] = {
        "models": lambda gpu: gpu.name,
        "power limits": lambda gpu: gpu.power_limit_w,
        "memory sizes": lambda gpu: gpu.memory,
    }
    for name, read in readings.items():
        values = sorted({str(read(gpu)) for gpu in gpus})
        if len(values) > 1:
            yield Spoiler(
                what=f"GPUs of different {name} ({', '.join(values)}): the slowest decides",
                remedy="choose like ones by CUDA_VISIBLE_DEVICES",
            )
    link = machine.interconnect
    if link and not link.startswith("NV") and all("SXM" in gpu.name for gpu in gpus):
        yield Spoiler(
            what=f"GPUs that NVLink connects show {link} between them",
            remedy="start nvidia-fabricmanager; do not hide GPUs or switches from the container",
        )


def host_spoilers(host: HostState) -> Iterator[Spoiler]:
    """Of the host, while nothing of ours runs on it."""
    count = len(host.cores)
    if host.governor not in (None, "performance"):
        yield Spoiler(
            what=f"the cores' clock follows the governor {host.governor}",
            remedy="cpupower frequency-set --governor performance",
        )
    if host.load is not None and host.load > max(_BUSY * count, 0.5):
        yield Spoiler(
            what=f"{host.load:.1f} processes ran in the last minute, on {count} cores",
            remedy="find them with top, and wait until they are done",
        )
    if host.cpu_quota is not None and host.cpu_quota < count:
        yield Spoiler(
            what=f"a quota of {host.cpu_quota:g} cores' time for {count} cores",
            remedy="raise it (docker --cpus, Kubernetes limits.cpu, cpu.max), or allow fewer cores",
        )
    if host.shared_memory is not None and host.shared_memory < _LEAST_SHARED_MEMORY:
        yield Spoiler(
            what=f"{host.shared_memory / 2**20:.0f} MiB are free in /dev/shm, where NCCL"
            " exchanges data",
            remedy="free some, or docker --shm-size=8g",
        )
    yield from _of_directories()


def variable_spoilers(environ: Mapping[str, str], *, has_gpus: bool) -> Iterator[Spoiler]:
    """Yield the variables that make every step another one, which a debugging session left set."""
    if has_gpus and environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        yield Spoiler(
            what="CUDA_LAUNCH_BLOCKING: the host waits for every kernel, so nothing overlaps",
            remedy="unset CUDA_LAUNCH_BLOCKING",
        )
    if has_gpus and "PYTORCH_NO_CUDA_MEMORY_CACHING" in environ:  # torch heeds any value
        yield Spoiler(
            what="PYTORCH_NO_CUDA_MEMORY_CACHING: every tensor is allocated by the driver",
            remedy="unset PYTORCH_NO_CUDA_MEMORY_CACHING",
        )
    if environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        yield Spoiler(
            what="TORCH_DISTRIBUTED_DEBUG=DETAIL: the ranks compare every collective before it",
            remedy="unset TORCH_DISTRIBUTED_DEBUG",
        )


def _of_directories() -> Iterator[Spoiler]:
    temporary = Path(tempfile.gettempdir())
    try:
        with tempfile.TemporaryFile(dir=temporary) as file:
            file.write(b"\0" * 2**20)
    except OSError as error:
        yield Spoiler(
            what=f"{temporary}: cannot be written: {error.strerror}",
            remedy="free some space, or set TMPDIR",
        )
    try:
        lease_directory()
    except LeaseError as error:
        what, _, remedy = str(error).partition("; ")
        yield Spoiler(what=what, remedy=remedy or "make it writable for all")
