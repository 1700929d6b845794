"""The result of ``ddp-perf doctor``: the machine, what it can gate, and sources of noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.core.gpu import Gpu, GpuHealth, GpuMachine
from ddp_perf.launch.launcher import Runtime
from ddp_perf.render.model import Note, Section, Table, figures, notes, words
from ddp_perf.render.terminal import Block
from ddp_perf.render.units import ABSENT, counted
from ddp_perf.system.checks import Spoiler, clock_advice, gpu_spoilers, host_spoilers, is_busy
from ddp_perf.system.gpu.gpus import accelerator_slug
from ddp_perf.system.gpu.torch_builds import mismatch
from ddp_perf.system.host.host import HostState

_GIB = 2**30
_GPU_COLUMNS = (
    *words("cuda", "model"),
    *figures("memory GiB", "power limit W", "SM clock MHz", "PCIe"),
    *words("persis\u00adtent", "ECC"),
    *figures("°C", "W now"),
)
_LEGEND = (
    "NV#: number of NVLinks; PIX, PXB: PCIe switches; PHB: a host bridge; NODE: bridges of a NUMA"
    " node; SYS: between NUMA nodes"
)
_TOGETHER = (2, 4, 8)  # ranks of the cases in bench_configs/health that have several


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of ``ddp-perf doctor``. A test can replay ``machine`` and ``health``."""

    host: HostState
    machine: GpuMachine
    health: tuple[GpuHealth, ...]
    cuda_visible_devices: str | None
    runtime: Runtime | None  # None: no rank could be started
    abilities: tuple[str, ...]
    spoilers: tuple[Spoiler, ...]


def abilities(machine: GpuMachine, host: HostState, runtime: Runtime | None) -> Iterator[str]:
    """Yield what this machine can gate, and what it cannot, tier by tier."""
    obstacle = _gpu_obstacle(machine, runtime)
    if obstacle is not None:
        yield f"gpu: nothing: {obstacle}"
    else:
        over = f" over {machine.interconnect}" if machine.interconnect else ""
        file = f"baselines/{accelerator_slug(machine)}.json"
        yield f"gpu: {_ranks(len(machine.gpus))}{over}, against {file}"
        if len(machine.gpus) == 1:
            yield "gpu: no DDP, no scaling and no collectives, which need two GPUs"
    if runtime is None:
        yield "cpu: nothing: no rank can be started"
        return
    count = len(host.cores)
    yield (
        f"cpu: {_ranks(count)}, a core each, over gloo: structure and numerics exactly; times only"
        " if nothing else runs, with a tolerance of 10 % or more"
    )
    if count == 1:
        yield "cpu: no scaling, which needs two cores"


def _gpu_obstacle(machine: GpuMachine, runtime: Runtime | None) -> str | None:
    """Return why nothing can run on GPUs here, or None if something can."""
    if not machine.gpus:
        hidden = "CUDA_VISIBLE_DEVICES shows none" if machine.driver else "no driver is loaded"
        return f"no GPU is visible ({machine.problem or hidden})"
    if runtime is None:
        return "no rank can be started"
    if runtime.lacking is not None:
        return f"torch {runtime.torch} is built without {runtime.lacking}"
    return mismatch(runtime.cuda, machine)


def torch_spoilers(runtime: Runtime, machine: GpuMachine) -> Iterator[Spoiler]:
    """Yield the reasons why this torch cannot use the machine's GPUs."""
    if runtime.lacking is not None:
        what = f"torch {runtime.torch} is built without {runtime.lacking}"
        yield Spoiler(what=what, remedy="install a CUDA build (pytorch.org/get-started)")
    elif (reason := mismatch(runtime.cuda, machine)) is not None:
        what, _, remedy = reason.partition(": ")
        yield Spoiler(what=what, remedy=remedy)


def diagnosis_parts(diagnosis: Diagnosis) -> Iterator[Block]:
    """Yield the tables, what can be gated, and what would spoil a measurement."""
    host, machine = diagnosis.host, diagnosis.machine
    yield f"host     {host.name}: {host.cpu}, cores {_ranges(host.cores)}"
    if diagnosis.runtime is not None:
        yield f"torch    {_versions(diagnosis.runtime, machine)}"
    if machine.gpus:
        mask = diagnosis.cuda_visible_devices
        yield f"visible  CUDA_VISIBLE_DEVICES={'unset' if mask is None else mask}"
        yield _gpu_table(machine.gpus, diagnosis.health)
    if len(machine.gpus) > 1:
        titles, *rows = topology_rows(machine)
        yield Table.of_texts(words(*titles), rows)
        yield _LEGEND
    yield Section(title="can gate", parts=notes(diagnosis.abilities))
    if (advice := clock_advice(machine)) is not None:
        yield Section(title="for more repeatable figures", parts=notes([advice]))
    if diagnosis.spoilers:
        lines = (text for one in diagnosis.spoilers for text in (one.what, f"  → {one.remedy}"))
        yield Section(title="would spoil a measurement", parts=notes(lines))
    else:
        yield "nothing here would spoil a measurement"
    if _gpu_obstacle(machine, diagnosis.runtime) is None:
        command = Note(text=health_command(len(machine.gpus)), kind="output")
        title = "is it what its name says (in a clone of ddp-perf)"
        yield Section(title=title, parts=(command,))


def health_command(gpus: int) -> str:
    """Return the command that measures one GPU, and as many of ``gpus`` as a suite has."""
    together = max((size for size in _TOGETHER if size <= gpus), default=None)
    tests = "test_target" if together is None else f"test_target and (ws1 or ws{together})"
    return f'pytest -m gpu -k "{tests}" -o ddp_configs=bench_configs/health'


def topology_rows(machine: GpuMachine) -> list[list[str]]:
    """Return the matrix of ``nvidia-smi topo -m``, in the order in which ranks take the GPUs."""
    names = [f"GPU{gpu.index}" for gpu in machine.gpus]
    rows = [["", *names, "cores", "NUMA node"]]
    for name, gpu in zip(names, machine.gpus, strict=True):
        links = ["X" if gpu is other else machine.link(gpu, other).name for other in machine.gpus]
        rows.append([name, *links, _ranges(gpu.cores), _or_dash(gpu.numa_node)])
    return rows


def _gpu_table(gpus: Sequence[Gpu], health: Sequence[GpuHealth]) -> Table:
    now = {one.uuid: one for one in health}
    rows = (
        (
            str(rank),
            gpu.name,
            _or_dash(gpu.memory and f"{gpu.memory / _GIB:.0f}"),
            _of_most(gpu.power_limit_w, gpu.power_default_w),
            _of_most(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
            _pcie(gpu),
            _on_or_off(gpu.persistence),
            _on_or_off(gpu.ecc),
            *_now(now.get(gpu.uuid, GpuHealth(uuid=gpu.uuid))),
        )
        for rank, gpu in enumerate(gpus)
    )
    return Table.of_texts(_GPU_COLUMNS, rows)


def _now(health: GpuHealth) -> tuple[str, str]:
    """Return the present temperature and power."""
    power = None if health.power_w is None else f"{health.power_w:.0f}"
    return _or_dash(health.temperature_c), _or_dash(power)


def _of_most(value: float | None, most: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:.0f}" if most is None else f"{value:.0f}/{most:.0f}"


def _pcie(gpu: Gpu) -> str:
    if gpu.pcie_generation_max is None or gpu.pcie_width_max is None:
        return ABSENT
    return f"{gpu.pcie_generation_max} x{gpu.pcie_width_max}"


def _versions(runtime: Runtime, machine: GpuMachine) -> str:
    versions = {
        "CUDA": runtime.cuda,
        "cuDNN": runtime.cudnn,
        "NCCL": runtime.nccl,
        "driver": machine.driver,
        "driver's CUDA": machine.cuda_driver,
        "Python": runtime.python,
    }
    known = [f"{name} {version}" for name, version in versions.items() if version]
    return ", ".join([runtime.torch, *known])


def _ranges(numbers: Sequence[int]) -> str:
    """Write a list of cores as the kernel does: ``0-3,8``."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1] = parts[-1][0], number
        else:
            parts.append((number, number))
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts) or ABSENT


def _on_or_off(value: bool | None) -> str:
    return ABSENT if value is None else "on" if value else "off"


def _or_dash(value: object) -> str:
    return ABSENT if value is None else str(value)


def _ranks(count: int) -> str:
    return "one rank" if count == 1 else f"up to {count} ranks"


# The short form of ``ddp-perf doctor``: what a machine can decide now, in one line.


def outlook(tier: Tier, machine: GpuMachine, health: Sequence[GpuHealth], host: HostState) -> str:
    """Return what is here, how much of it others use, and what can be decided with that."""
    here = counted(len(host.cores), "core")
    found = [*host_spoilers(host)]
    if tier == "gpu":
        here = f"{counted(len(machine.gpus), 'GPU')} ({machine.name}), {here}"
        found += gpu_spoilers(machine, health, host.cores)
    if host.busy is not None:
        here += f", other processes take {host.busy / len(host.cores):.0%}"
    if is_busy(host):
        times = "times only on a quieter machine"
    elif found:
        times = "times are disturbed: ddp-perf doctor states by what, and what helps"
    else:
        times = "times, too" if tier == "gpu" else "times with a tolerance of 10 % or more"
    return f"{here}: structure, losses and work exactly; {times}"
