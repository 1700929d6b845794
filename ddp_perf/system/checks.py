"""Checks of the environment: the noise sources of a measurement here, each with its remedy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.gpu import Gpu, GpuHealth, GpuLoad, GpuMachine, Throttle
from ddp_perf.errors import LeaseError
from ddp_perf.system.host.host import HostState
from ddp_perf.system.lease import lease_directory

_GIB = 2**30
_LIMITED = 0.99  # of the default power limit: somebody set a lower one
_IDLE_MEMORY = _GIB  # a driver uses less for itself
_LEAST_SHARED_MEMORY = _GIB // 2  # Docker gives 64 MiB, and NCCL fails with it
_BUSY = 0.1  # of the cores; at least half a core: somebody else computes
_FULL_SPEED = 0.9  # of the largest clock under load: less is worth a remark
_FULL_WIDTH = 16  # lanes of a slot


class Spoiler(msgspec.Struct, frozen=True, kw_only=True):
    """A noise source: what would disturb a measurement, and the remedy."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def gpu_spoilers(
    machine: GpuMachine, health: Sequence[GpuHealth], allowed: Sequence[int]
) -> Iterator[Spoiler]:
    """Yield the noise sources of the GPUs, while no rank runs on them.

    ``allowed``: the cores that this process may use.
    """
    if machine.problem:
        yield Spoiler(what=f"NVML: {machine.problem}", remedy="see nvidia-smi and dmesg")
    now = {one.uuid: one for one in health}
    for gpu in machine.gpus:
        yield from _settings(gpu)
        yield from _health(gpu, now.get(gpu.uuid, GpuHealth(uuid=gpu.uuid)))
        if gpu.cores and not set(gpu.cores) & set(allowed):
            yield Spoiler(
                what=f"GPU {gpu.index}: this process may not use any core near it",
                remedy="allow such cores (taskset, docker --cpuset-cpus, Slurm's --gpu-bind)",
            )
    yield from _differences(machine)


def faults_under_load(machine: GpuMachine, loads: Mapping[str, GpuLoad]) -> Iterator[str]:
    """Yield what slows GPUs down while ranks run on them, in one line each.

    ``loads`` are readings under that load, by UUID. Settings that do not change a step are left
    out, and so are remedies: most are those of ``gpu_spoilers``.
    """
    for gpu in machine.gpus:
        load = loads.get(gpu.uuid, GpuLoad())
        yield from (spoiler.what for spoiler in _limits(gpu))
        yield from _clock_under_load(gpu, load)
        yield from _link_under_load(gpu, load)
    yield from (spoiler.what for spoiler in _differences(machine))


def _clock_under_load(gpu: Gpu, load: GpuLoad) -> Iterator[str]:
    now, most = load.sm_clock_mhz, gpu.sm_clock_max_mhz
    if load.throttle:
        to = f" to {now} of {most} MHz" if now and most else ""
        yield f"{_reduced_clocks(gpu, load.throttle).what}{to}"
    elif now and most and now < _FULL_SPEED * most:
        yield f"GPU {gpu.index}: its clock under load is {now} of {most} MHz"


def _link_under_load(gpu: Gpu, load: GpuLoad) -> Iterator[str]:
    """Yield what the link lacks. The most lanes by NVML may be those of card and slot together."""
    width, most = load.pcie_width, gpu.pcie_width_max
    if width and most and width < most:
        yield _few_lanes(gpu, width).what
    elif width and width < _FULL_WIDTH:
        yield f"GPU {gpu.index}: PCIe runs on {width} lanes"
    now, newest = load.pcie_generation, gpu.pcie_generation_max
    if now and newest and now < newest:
        yield f"GPU {gpu.index}: PCIe runs at generation {now} of {newest}"


def _settings(gpu: Gpu) -> Iterator[Spoiler]:
    command = f"nvidia-smi -i {gpu.index}"
    if gpu.persistence is False:
        yield Spoiler(
            what=f"GPU {gpu.index}: persistence is off, so the driver initialises it for each first"
            " user",
            remedy=f"{command} -pm 1",
        )
    yield from _limits(gpu)
    if gpu.compute_mode == "prohibited":
        yield Spoiler(
            what=f"GPU {gpu.index}: its compute mode is prohibited", remedy=f"{command} -c 0"
        )


def _limits(gpu: Gpu) -> Iterator[Spoiler]:
    where, command = f"GPU {gpu.index}", f"nvidia-smi -i {gpu.index}"
    limit, default = gpu.power_limit_w, gpu.power_default_w
    if limit and default and limit < _LIMITED * default:
        yield Spoiler(
            what=f"{where}: its power limit is {limit:.0f} W (default: {default:.0f} W)",
            remedy=f"{command} -pl {default:.0f}",
        )
    if gpu.fabric in ("not started", "in progress"):
        yield Spoiler(
            what=f"{where}: its NVLink switches are not set up ({gpu.fabric}): CUDA error 802",
            remedy="start nvidia-fabricmanager, of the driver's version, and wait for it",
        )


def _reduced_clocks(gpu: Gpu, throttle: Sequence[Throttle]) -> Spoiler:
    return Spoiler(
        what=f"GPU {gpu.index}: its clocks are reduced by {', '.join(throttle)}",
        remedy="see nvidia-smi -q -d PERFORMANCE; improve cooling or power, raise limits",
    )


def _few_lanes(gpu: Gpu, width: int) -> Spoiler:
    return Spoiler(
        what=f"GPU {gpu.index}: PCIe runs on {width} of {gpu.pcie_width_max} lanes",
        remedy="reseat the card; check the slot's wiring and the firmware's settings",
    )


def _health(gpu: Gpu, now: GpuHealth) -> Iterator[Spoiler]:
    where = f"GPU {gpu.index}"
    if now.throttle:
        yield _reduced_clocks(gpu, now.throttle)
    for process in now.processes or ():
        memory = f" with {process.memory / _GIB:.1f} GiB" if process.memory else ""
        yield Spoiler(
            what=f"{where}: process {process.pid} computes on it{memory}",
            remedy="wait for it, or end it",
        )
    if not now.processes and (now.memory_used or 0) > _IDLE_MEMORY:
        yield Spoiler(
            what=f"{where}: {(now.memory_used or 0) / _GIB:.1f} GiB are in use by a"
            " process that is not visible from here",
            remedy="run nvidia-smi outside this container",
        )
    if now.pcie_width and gpu.pcie_width_max and now.pcie_width < gpu.pcie_width_max:
        yield _few_lanes(gpu, now.pcie_width)
    if now.remap_pending:
        yield Spoiler(
            what=f"{where}: broken rows of its memory are to be replaced at its next reset",
            remedy=f"end its processes, then nvidia-smi -i {gpu.index} -r",
        )
    if now.ecc_uncorrected:
        yield Spoiler(
            what=f"{where}: {now.ecc_uncorrected} memory errors that ECC could not correct",
            remedy=f"nvidia-smi -i {gpu.index} -q -d ECC; reset or replace it",
        )


def clock_advice(machine: GpuMachine) -> str | None:
    """Return how to lock the clocks, which makes figures more repeatable, or None if one is set.

    NVML does not report clocks that are locked by ``nvidia-smi -lgc``.
    """
    free = [
        gpu for gpu in machine.gpus if not (gpu.sm_clock_mhz or 0) < (gpu.sm_clock_default_mhz or 0)
    ]
    if not free:
        return None
    indices = ",".join(str(gpu.index) for gpu in free)
    return (
        f"nvidia-smi -i {indices} -lgc MHZ,MHZ locks the clocks, if they are not locked yet, at one"
        " that each card holds under load; -rgc ends it"
    )


def _differences(machine: GpuMachine) -> Iterator[Spoiler]:
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
                what=f"the GPUs have different {name} ({', '.join(values)}): the slowest decides",
                remedy="choose GPUs that are alike with CUDA_VISIBLE_DEVICES",
            )
    link = machine.interconnect
    if link and not link.startswith("NV") and all(map(_has_nvlink, gpus)):
        yield Spoiler(
            what=f"NVLink should connect the GPUs, but NVML reports {link} between them",
            remedy="start nvidia-fabricmanager; do not hide GPUs or switches from the container",
        )


def _has_nvlink(gpu: Gpu) -> bool:
    """Return whether the GPU's board has NVLink. The names of H100 and H200 do not state it."""
    return "SXM" in gpu.name or gpu.fabric is not None


def host_spoilers(host: HostState) -> Iterator[Spoiler]:
    """Yield the noise sources of the host, while no rank runs on it."""
    count = len(host.cores)
    if host.governor not in (None, "performance"):
        yield Spoiler(
            what=f"the CPU frequency governor is {host.governor}",
            remedy="cpupower frequency-set --governor performance",
        )
    if is_busy(host):
        yield Spoiler(
            what=f"{host.busy:.1f} of {count} cores work for other processes now",
            remedy="find the processes with top, and wait until they end",
        )
    if host.cpu_quota is not None and host.cpu_quota < count:
        yield Spoiler(
            what=f"the CPU quota is the time of {host.cpu_quota:g} cores, for {count} cores",
            remedy="raise it (docker --cpus, Kubernetes limits.cpu, cpu.max), or allow fewer cores",
        )
    if host.shared_memory is not None and host.shared_memory < _LEAST_SHARED_MEMORY:
        yield Spoiler(
            what=f"only {host.shared_memory / 2**20:.0f} MiB are free in /dev/shm, where NCCL"
            " exchanges data",
            remedy="free some, or start the container with docker --shm-size=8g",
        )
    yield from _directories()


def is_busy(host: HostState) -> bool:
    """Return whether other processes take so much of the cores that times are disturbed."""
    return host.busy is not None and host.busy > max(_BUSY * len(host.cores), 0.5)


def variable_spoilers(environ: Mapping[str, str], *, has_gpus: bool) -> Iterator[Spoiler]:
    """Yield the environment variables of debugging that change every step."""
    if has_gpus and environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        yield Spoiler(
            what="CUDA_LAUNCH_BLOCKING: the host waits for every kernel, so nothing overlaps",
            remedy="unset CUDA_LAUNCH_BLOCKING",
        )
    if has_gpus and "PYTORCH_NO_CUDA_MEMORY_CACHING" in environ:  # torch accepts any value
        yield Spoiler(
            what="PYTORCH_NO_CUDA_MEMORY_CACHING: every tensor is allocated by the driver",
            remedy="unset PYTORCH_NO_CUDA_MEMORY_CACHING",
        )
    if environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        yield Spoiler(
            what="TORCH_DISTRIBUTED_DEBUG=DETAIL: the ranks compare every collective beforehand",
            remedy="unset TORCH_DISTRIBUTED_DEBUG",
        )


def _directories() -> Iterator[Spoiler]:
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
        yield Spoiler(what=what, remedy=remedy or "make it writable for all users")
