"""The one place that calls NVML: no torch, no CUDA context, and nothing but plain values out.

What a card, a driver or a container does not give is None; a GPU that fell off is left out,
and said in ``GpuMachine.problem``. Functions are called by name: pynvml has those of its own
version, the driver's library those of the driver's, and neither has to have all of them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pynvml

from ddp_perf.core.gpu import Gpu, GpuHealth, GpuLink, GpuMachine, GpuProcess, PcieLevel, Throttle

_LEVELS: dict[int, PcieLevel] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "INT",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
# Bits of nvml.h, by value: its names for them change ("throttle reasons", then "event reasons").
_THROTTLE: dict[int, Throttle] = {
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "heat (software)",
    0x040: "heat (hardware)",
    0x080: "power brake",
    0x100: "display clocks",
}
# Counters of nvml.h: nanoseconds in which heat held the clocks down, by software, by hardware.
_HEAT_FIELDS = (269, 270)
_THERMAL_POLICY = 1  # of the older counter, which is to be removed together with its constants
# Of each reading every name that it had, the newest first.
_REASONS = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
_TEMPERATURE = "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"
_PROCESSES = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"
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
    """Reads through NVML. Initialises it for each call, and leaves nothing behind."""

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
    """Return how one GPU, or one MIG slice, is now."""
    try:
        with _nvml():
            return _read_health(uuid)
    except pynvml.NVMLError:
        return GpuHealth(uuid=uuid)


def read_counters(uuid: str) -> GpuHealth:
    """Return what the driver counts of one GPU, or one MIG slice, and nothing else: so few calls
    that they fit between two steps.
    """
    try:
        with _nvml():
            handle = _call("nvmlDeviceGetHandleByUUID", uuid)
            return GpuHealth(
                uuid=uuid,
                heat_s=_held_by_heat_s(_card(handle)),
                energy_j=_energy_j(handle),
                ecc_uncorrected=_ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            )
    except pynvml.NVMLError:
        return GpuHealth(uuid=uuid)


def keep_open() -> None:
    """Leave NVML initialised until this process ends, where there is one: it counts who uses it,
    so that later readings only count up and down, and take no time to initialise it.
    """
    with contextlib.suppress(pynvml.NVMLError):
        _call("nvmlInit")


def cores_near(uuid: str) -> tuple[int, ...]:
    """Return the cores of the GPU's NUMA node; empty where NVML does not report them."""
    try:
        with _nvml():
            return _cores_near(_card(_call("nvmlDeviceGetHandleByUUID", uuid)))
    except pynvml.NVMLError:
        return ()


def nvml_uuid(cuda_uuid: str, mask: str | None) -> str:
    """Return what NVML calls the device that CUDA gives this UUID, which has no prefix there.

    Of a MIG slice CUDA may give the UUID of the slice or, by its version, that of the card. A
    process sees one slice at most: the one that ``mask`` names, or else the card's first.
    """
    whole, cut = f"GPU-{cuda_uuid}", f"MIG-{cuda_uuid}"
    try:
        with _nvml():
            if _optional("nvmlDeviceGetHandleByUUID", cut) is not None:
                return cut
            card = _call("nvmlDeviceGetHandleByUUID", whole)
            uuids = [_call("nvmlDeviceGetUUID", one) for one in _slices(card)]
    except pynvml.NVMLError:
        return whole
    first = (mask or "").split(",")[0].strip()
    named = [uuid for uuid in uuids if first and uuid.startswith(first)]
    return next(iter(named or uuids), whole)


@contextlib.contextmanager
def _nvml() -> Iterator[None]:
    _call("nvmlInit")
    try:
        yield
    finally:
        _optional("nvmlShutdown")


def _call(name: str, *arguments: Any) -> Any:
    """Call pynvml's function of that name. Raises NVMLError, also where pynvml or the driver's
    library has no such function.
    """
    function = getattr(pynvml, name, None)
    if function is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    try:
        return function(*arguments)
    except pynvml.NVMLLibraryMismatchError:  # which is no NVMLError
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None


def _optional(name: str, *arguments: Any) -> Any:
    """Call it, and return None where this card or driver does not support it, or forbids it."""
    try:
        return _call(name, *arguments)
    except pynvml.NVMLError:
        return None


def _first(names: Sequence[str], *arguments: Any) -> Any:
    """Return what the first of the functions gives that gives anything: newer names first."""
    answers = (_optional(name, *arguments) for name in names)
    return next((answer for answer in answers if answer is not None), None)


def _without_nvml(error: pynvml.NVMLError) -> str | None:
    """A machine without a driver is no problem; a driver that cannot be asked is one."""
    if not _LOADED_DRIVER.exists():
        return None
    return f"{error}, though a driver is loaded; a container needs its 'utility' capability"


def _read_machine() -> GpuMachine:
    gpus: list[Gpu] = []
    problems: list[str] = []
    handles: dict[int, Any] = {}
    for index in range(_call("nvmlDeviceGetCount")):
        try:
            handle = _call("nvmlDeviceGetHandleByIndex", index)
            found = _read_gpu(index, handle)
        except pynvml.NVMLError as error:
            problems.append(f"GPU {index}: {error}")
            continue
        if not found:
            problems.append(f"GPU {index}: MIG is on, and no slice is made")
        elif not found[0].mig:
            handles[index] = handle
        gpus += found
    cuda = _optional("nvmlSystemGetCudaDriverVersion")
    return GpuMachine(
        gpus=tuple(gpus),
        links=tuple(_read_links(handles)),
        driver=_optional("nvmlSystemGetDriverVersion"),
        cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        problem="; ".join(problems) or None,
    )


def _read_gpu(index: int, handle: Any) -> list[Gpu]:
    """The GPU, or its slices where MIG is on. Raises NVMLError where it does not answer."""
    nodes = _optional("nvmlDeviceGetMemoryAffinity", handle, _NODE_WORDS, _NODE_SCOPE)
    limit_mw = _optional("nvmlDeviceGetEnforcedPowerLimit", handle)
    default_mw = _optional("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    ecc = _optional("nvmlDeviceGetEccMode", handle)
    persistence = _optional("nvmlDeviceGetPersistenceMode", handle)
    clock = pynvml.NVML_CLOCK_SM
    slices = list(_slices(handle)) if _is_cut(handle) else [handle]
    return [
        Gpu(
            index=index,
            uuid=_call("nvmlDeviceGetUUID", one),
            name=_call("nvmlDeviceGetName", one),
            compute_capability=tuple(_call("nvmlDeviceGetCudaComputeCapability", handle)),
            mig=one is not handle,
            memory=_total(_optional("nvmlDeviceGetMemoryInfo", one)),
            numa_node=min(_bits(nodes), default=None),
            cores=_cores_near(handle),
            power_limit_w=_thousandth(limit_mw),
            power_default_w=_thousandth(default_mw),
            sm_clock_mhz=_optional("nvmlDeviceGetApplicationsClock", handle, clock),
            sm_clock_default_mhz=_optional("nvmlDeviceGetDefaultApplicationsClock", handle, clock),
            sm_clock_max_mhz=_optional("nvmlDeviceGetMaxClockInfo", handle, clock),
            pcie_generation_max=_optional("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            pcie_width_max=_optional("nvmlDeviceGetMaxPcieLinkWidth", handle),
            persistence=None if persistence is None else bool(persistence),
            ecc=None if ecc is None else bool(ecc[0]),
        )
        for one in slices
    ]


def _cores_near(handle: Any) -> tuple[int, ...]:
    arguments = handle, _CORE_WORDS, _NODE_SCOPE
    return _bits(_optional("nvmlDeviceGetCpuAffinityWithinScope", *arguments))


def _slices(handle: Any) -> Iterator[Any]:
    for number in range(_optional("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        one = _optional("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        if one is not None:
            yield one


def _read_links(handles: dict[int, Any]) -> Iterator[GpuLink]:
    """Of every pair of whole GPUs. MIG slices have none: no traffic leaves one for another."""
    ends = {index: _nvlink_ends(handle) for index, handle in handles.items()}
    places = {index: _bus_id(handle) for index, handle in handles.items()}
    for first, second in itertools.combinations(handles, 2):
        direct = ends[first].count(places[second]) if places[second] else 0
        switched = min(ends[first].count(_SWITCH), ends[second].count(_SWITCH))
        level = _optional("nvmlDeviceGetTopologyCommonAncestor", handles[first], handles[second])
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
        if not _optional("nvmlDeviceGetNvLinkState", handle, link):
            continue
        kind = _optional("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ends.append(_SWITCH)
        elif info := _optional("nvmlDeviceGetNvLinkRemotePciInfo", handle, link):
            ends.append(_text(info.busId))
    return ends


def _bus_id(handle: Any) -> str:
    info = _optional("nvmlDeviceGetPciInfo", handle)
    return _text(info.busId) if info else ""


def _read_health(uuid: str) -> GpuHealth:
    """Return every reading, None for one that fails, also where the GPU is gone.

    A MIG slice has the clocks and the temperature of its card. The card's energy and power are
    those of all its slices, so a slice has none; and of a card that is cut into slices, memory
    and processes are nobody's own either.
    """
    handle = _optional("nvmlDeviceGetHandleByUUID", uuid)
    if handle is None:
        return GpuHealth(uuid=uuid)
    is_slice, card = _is_slice(handle), _card(handle)
    is_cut = _is_cut(card)
    has_own_power, has_own_memory = not (is_slice or is_cut), is_slice or not is_cut
    clock, link = "nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrPcieLink"
    memory = _optional("nvmlDeviceGetMemoryInfo", handle) if has_own_memory else None
    power_mw = _optional("nvmlDeviceGetPowerUsage", handle) if has_own_power else None
    return GpuHealth(
        uuid=uuid,
        throttle=_held_down_by(card),
        heat_s=_held_by_heat_s(card),
        temperature_c=_first(_TEMPERATURE, card, pynvml.NVML_TEMPERATURE_GPU),
        sm_clock_mhz=_optional(clock, card, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=_optional(clock, card, pynvml.NVML_CLOCK_MEM),
        power_w=_thousandth(power_mw),
        energy_j=_energy_j(handle),
        ecc_corrected=_ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ecc_uncorrected=_ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        pcie_generation=_optional(f"{link}Generation", card),
        pcie_width=_optional(f"{link}Width", card),
        memory_used=None if memory is None else int(memory.used),
        processes=_processes(handle) if has_own_memory else None,
    )


def _is_slice(handle: Any) -> bool:
    return bool(_optional("nvmlDeviceIsMigDeviceHandle", handle))


def _card(handle: Any) -> Any:
    """Return the GPU that a MIG slice is cut from, or the handle itself if it is a GPU's."""
    if not _is_slice(handle):
        return handle
    card = _optional("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    return handle if card is None else card


def _is_cut(card: Any) -> bool:
    mig = _optional("nvmlDeviceGetMigMode", card)
    return bool(mig and mig[0])


def _energy_j(handle: Any) -> float | None:
    """Return None of a slice, and of a card that is cut into slices: the card counts for all."""
    if _is_slice(handle) or _is_cut(handle):
        return None
    return _thousandth(_optional("nvmlDeviceGetTotalEnergyConsumption", handle))


def _processes(handle: Any) -> tuple[GpuProcess, ...] | None:
    found = _first(_PROCESSES, handle)
    if found is None:
        return None
    return tuple(GpuProcess(pid=one.pid, memory=one.usedGpuMemory) for one in found)


def _held_down_by(card: Any) -> tuple[Throttle, ...] | None:
    bits = _first(_REASONS, card)
    return None if bits is None else tuple(name for bit, name in _THROTTLE.items() if bits & bit)


def _held_by_heat_s(card: Any) -> float | None:
    """Return seconds since the driver was loaded. Software and hardware may hold at once, so the
    longer of both counts.
    """
    fields = _optional("nvmlDeviceGetFieldValues", card, list(_HEAT_FIELDS)) or ()
    counted = [one.value.ullVal for one in fields if one.nvmlReturn == pynvml.NVML_SUCCESS]
    if counted:
        return int(max(counted)) / 1e9
    status = _optional("nvmlDeviceGetViolationStatus", card, _THERMAL_POLICY)
    return None if status is None else int(status.violationTime) / 1e9


def _ecc_errors(handle: Any, kind: int) -> int | None:
    name, counter = "nvmlDeviceGetTotalEccErrors", pynvml.NVML_VOLATILE_ECC
    errors: int | None = _optional(name, handle, kind, counter)
    return errors


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
