"""The one place that calls NVML: no torch, no CUDA context, and nothing but plain values out.

What a card, a driver or a container does not give is None; a GPU that fell off is left out,
and said in ``GpuMachine.problem``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pynvml

from ddp_perf.core.gpu import Gpu, GpuHealth, GpuLink, GpuMachine, GpuProcess, PcieLevel

_T = TypeVar("_T")
_LEVELS: dict[int, PcieLevel] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "INT",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
_THROTTLE = {
    pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting: "application clocks",
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksThrottleReasonSyncBoost: "sync boost",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "heat (software)",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "heat (hardware)",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
    pynvml.nvmlClocksThrottleReasonDisplayClockSetting: "display clocks",
}
_WORD = 64  # bits of an affinity mask's element
_CORE_WORDS = 16  # 1,024 cores
_NODE_WORDS = 2
_NODE_SCOPE = pynvml.NVML_AFFINITY_SCOPE_NODE
_SWITCH = "switch"
_LOADED_DRIVER = Path("/proc/driver/nvidia/version")


class GpuReader(Protocol):
    """Reads this machine's GPUs: through NVML, or from what was recorded elsewhere."""

    def machine(self) -> GpuMachine:
        """Every GPU, whatever CUDA_VISIBLE_DEVICES says; none where there is no driver."""
        ...

    def health(self, gpus: Sequence[Gpu]) -> tuple[GpuHealth, ...]:
        """How these GPUs are, now."""
        ...


class NvmlReader:
    """Through NVML. Initialises it for each call, and leaves nothing behind."""

    def machine(self) -> GpuMachine:
        try:
            with _nvml():
                return _read_machine()
        except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded) as error:
            return GpuMachine(gpus=(), problem=_without_nvml(error))
        except pynvml.NVMLError as error:  # a driver of another version than its library, say
            return GpuMachine(gpus=(), problem=str(error))

    def health(self, gpus: Sequence[Gpu]) -> tuple[GpuHealth, ...]:
        return tuple(read_health(gpu.uuid) for gpu in gpus)


def read_health(uuid: str) -> GpuHealth:
    """Of one GPU, now."""
    try:
        with _nvml():
            return _read_health(uuid)
    except pynvml.NVMLError:
        return GpuHealth(uuid=uuid)


def cores_near(uuid: str) -> tuple[int, ...]:
    """Cores of the GPU's NUMA node; empty where NVML does not say."""
    try:
        with _nvml():
            return _cores_near(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError:
        return ()


@contextlib.contextmanager
def _nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _without_nvml(error: pynvml.NVMLError) -> str | None:
    """A machine without a driver is no problem; a driver that cannot be asked is one."""
    if not _LOADED_DRIVER.exists():
        return None
    return f"{error}, though a driver is loaded; a container needs its 'utility' capability"


def _read_machine() -> GpuMachine:
    gpus: list[Gpu] = []
    problems: list[str] = []
    handles: dict[int, Any] = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found = _read_gpu(index, handle)
        except pynvml.NVMLError as error:
            problems.append(f"GPU {index}: {error}")
            continue
        if not found:
            problems.append(f"GPU {index}: MIG is on, and no slice is made")
        elif not found[0].mig:
            handles[index] = handle
        gpus += found
    cuda = _optional(pynvml.nvmlSystemGetCudaDriverVersion)
    return GpuMachine(
        gpus=tuple(gpus),
        links=tuple(_read_links(handles)),
        driver=_optional(pynvml.nvmlSystemGetDriverVersion),
        cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        problem="; ".join(problems) or None,
    )


def _read_gpu(index: int, handle: Any) -> list[Gpu]:
    """The GPU, or its slices where MIG is on. Raises NVMLError where it does not answer."""
    nodes = _optional(pynvml.nvmlDeviceGetMemoryAffinity, handle, _NODE_WORDS, _NODE_SCOPE)
    limit_mw = _optional(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    default_mw = _optional(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)
    ecc = _optional(pynvml.nvmlDeviceGetEccMode, handle)
    persistence = _optional(pynvml.nvmlDeviceGetPersistenceMode, handle)
    clock = pynvml.NVML_CLOCK_SM
    mig = _optional(pynvml.nvmlDeviceGetMigMode, handle)
    slices = list(_slices(handle)) if mig and mig[0] else [handle]
    return [
        Gpu(
            index=index,
            uuid=pynvml.nvmlDeviceGetUUID(one),
            name=pynvml.nvmlDeviceGetName(one),
            compute_capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
            mig=one is not handle,
            memory=_total(_optional(pynvml.nvmlDeviceGetMemoryInfo, one)),
            numa_node=min(_bits(nodes), default=None),
            cores=_cores_near(handle),
            power_limit_w=_thousandth(limit_mw),
            power_default_w=_thousandth(default_mw),
            sm_clock_mhz=_optional(pynvml.nvmlDeviceGetApplicationsClock, handle, clock),
            sm_clock_default_mhz=_optional(
                pynvml.nvmlDeviceGetDefaultApplicationsClock, handle, clock
            ),
            sm_clock_max_mhz=_optional(pynvml.nvmlDeviceGetMaxClockInfo, handle, clock),
            pcie_generation_max=_optional(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            pcie_width_max=_optional(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            persistence=None if persistence is None else bool(persistence),
            ecc=None if ecc is None else bool(ecc[0]),
        )
        for one in slices
    ]


def _cores_near(handle: Any) -> tuple[int, ...]:
    arguments = handle, _CORE_WORDS, _NODE_SCOPE
    return _bits(_optional(pynvml.nvmlDeviceGetCpuAffinityWithinScope, *arguments))


def _slices(handle: Any) -> Iterator[Any]:
    for number in range(_optional(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        one = _optional(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if one is not None:
            yield one


def _read_links(handles: dict[int, Any]) -> Iterator[GpuLink]:
    """Of every pair of whole GPUs. MIG slices have none: no traffic leaves one for another."""
    ends = {index: _nvlink_ends(handle) for index, handle in handles.items()}
    places = {index: _bus_id(handle) for index, handle in handles.items()}
    for first, second in itertools.combinations(handles, 2):
        direct = ends[first].count(places[second]) if places[second] else 0
        switched = min(ends[first].count(_SWITCH), ends[second].count(_SWITCH))
        level = _optional(
            pynvml.nvmlDeviceGetTopologyCommonAncestor, handles[first], handles[second]
        )
        yield GpuLink(
            first=first,
            second=second,
            nvlinks=direct or switched,
            pcie=None if level is None else _LEVELS.get(level),
        )


def _nvlink_ends(handle: Any) -> list[str]:
    """Where each active NVLink of the GPU leads: a switch, or a bus id."""
    ends = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if not _optional(pynvml.nvmlDeviceGetNvLinkState, handle, link):
            continue
        kind = _optional(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ends.append(_SWITCH)
        elif info := _optional(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link):
            ends.append(_text(info.busId))
    return ends


def _bus_id(handle: Any) -> str:
    info = _optional(pynvml.nvmlDeviceGetPciInfo, handle)
    return _text(info.busId) if info else ""


def _read_health(uuid: str) -> GpuHealth:
    """A reading that fails is None, also where the GPU is gone."""
    handle = _optional(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None:
        return GpuHealth(uuid=uuid)
    memory = _optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
    reasons = _optional(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    processes = _optional(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return GpuHealth(
        uuid=uuid,
        throttle=None if reasons is None else _reasons(reasons),
        heat_s=_held_by_heat(handle),
        temperature_c=_optional(
            pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
        ),
        sm_clock_mhz=_optional(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=_optional(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        power_w=_thousandth(_optional(pynvml.nvmlDeviceGetPowerUsage, handle)),
        energy_j=_thousandth(_optional(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)),
        ecc_corrected=_ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ecc_uncorrected=_ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        pcie_generation=_optional(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        pcie_width=_optional(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        memory_used=None if memory is None else int(memory.used),
        processes=None
        if processes is None
        else tuple(GpuProcess(pid=p.pid, memory=p.usedGpuMemory) for p in processes),
    )


def _held_by_heat(handle: Any) -> float | None:
    """Seconds, since the driver was loaded."""
    status = _optional(pynvml.nvmlDeviceGetViolationStatus, handle, pynvml.NVML_PERF_POLICY_THERMAL)
    return None if status is None else int(status.violationTime) / 1e9


def _ecc_errors(handle: Any, kind: int) -> int | None:
    return _optional(pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_VOLATILE_ECC)


def _reasons(bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in _THROTTLE.items() if bits & bit)


def _optional(read: Callable[..., _T], *arguments: Any) -> _T | None:
    """None where this card or driver does not support the reading, or forbids it."""
    try:
        return read(*arguments)
    except pynvml.NVMLError:
        return None


def _bits(words: Any) -> tuple[int, ...]:
    """Numbers of the set bits of an affinity mask."""
    return tuple(
        number * _WORD + bit
        for number, word in enumerate(words or ())
        for bit in range(_WORD)
        if word >> bit & 1
    )


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _total(memory: Any) -> int | None:
    return None if memory is None else int(memory.total)


def _text(value: str | bytes) -> str:
    """Bus ids come as bytes from some versions, and in either case."""
    return (value.decode() if isinstance(value, bytes) else value).lower()
