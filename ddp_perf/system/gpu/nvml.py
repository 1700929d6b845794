"""Readings of GPUs through NVML, as values, without torch and without a CUDA context.

A reading that a card, a driver or a container does not give is None. A GPU that does not answer
is left out and named in ``GpuMachine.problem``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import byref
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from ddp_perf.core.gpu import (
    ComputeMode,
    FabricState,
    Gpu,
    GpuHealth,
    GpuLink,
    GpuLoad,
    GpuMachine,
    GpuProcess,
    PcieLevel,
    Throttle,
)
from ddp_perf.system.host.kernel_files import text_of

T = TypeVar("T")

_NVIDIA = "0x10de"  # the vendor's PCI id
_DISPLAY = "0x03"  # the PCI class of GPUs, also of those without a display


def nvidia_device(root: Path = Path("/")) -> str | None:
    """Return a trace of an NVIDIA GPU, as the end of a sentence, or None if there is none.

    The kernel shows it, whether a driver can use it or not.
    """
    if (root / "proc/driver/nvidia/version").exists():
        return "a driver is loaded"
    for node in _entries(root / "dev"):
        if node.name.startswith("nvidia") and node.name[6:7].isdigit():
            return f"there is /dev/{node.name}"
    for device in _entries(root / "sys/bus/pci/devices"):
        kind = text_of(device / "class") or ""
        if text_of(device / "vendor") == _NVIDIA and kind.startswith(_DISPLAY):
            return f"there is an NVIDIA GPU at {device.name}"
    return None


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:  # it is not there, or nobody may read it
        return []


# Calls of NVML by name: pynvml has the functions of its own version, the library the driver's.
#
# Either may lack some. No other module but those of this package imports pynvml.


@contextlib.contextmanager
def loaded_nvml() -> Iterator[None]:
    """Keep NVML initialised in the ``with`` block. Raises NVMLError if there is none."""
    call("nvmlInit")
    try:
        yield
    finally:
        optional("nvmlShutdown")


def of_gpu(uuid: str, read: Callable[[Any], T], unknown: T) -> T:
    """Return what ``read`` gives for the handle of a GPU or MIG slice; ``unknown``: no answer."""
    try:
        with loaded_nvml():
            return read(call("nvmlDeviceGetHandleByUUID", uuid))
    except pynvml.NVMLError:
        return unknown


def call(name: str, *arguments: Any) -> Any:
    """Call pynvml's function of that name.

    Raises NVMLError, also if pynvml or the driver's library has no such function.
    """
    function = getattr(pynvml, name, None)
    if function is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    try:
        return function(*arguments)
    except pynvml.NVMLLibraryMismatchError:  # this class is no NVMLError
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None


def optional(name: str, *arguments: Any) -> Any:
    """Call a function, and return None if the card or the driver refuses or lacks it."""
    try:
        return call(name, *arguments)
    except pynvml.NVMLError:
        return None


def first_known(names: Sequence[str], *arguments: Any) -> Any:
    """Return the first result that is not None, of functions by their newer and older names."""
    answers = (optional(name, *arguments) for name in names)
    return next((answer for answer in answers if answer is not None), None)


def is_slice(handle: Any) -> bool:
    """Return whether the handle is that of a MIG slice."""
    return bool(optional("nvmlDeviceIsMigDeviceHandle", handle))


def card_of(handle: Any) -> Any:
    """Return the GPU of a MIG slice, or the handle itself if it is a GPU's."""
    if not is_slice(handle):
        return handle
    card = optional("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    return handle if card is None else card


def has_mig(card: Any) -> bool:
    """Return whether MIG is on, so that the card has slices."""
    mig = optional("nvmlDeviceGetMigMode", card)
    return bool(mig and mig[0])


def is_split(handle: Any) -> bool:
    """Return whether the handle is that of a card with slices."""
    return has_mig(handle) and not is_slice(handle)


def is_shared(handle: Any) -> bool:
    """Return whether the counters of its card are also those of other MIG slices."""
    return is_slice(handle) or has_mig(handle)


# All names that a function has had, the newest first.
_PROCESSES = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"
_MPS_CLIENTS = (
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
)
_MPS_SERVER = "nvidia-cuda-mps-server"


def processes_on(handle: Any) -> tuple[GpuProcess, ...] | None:
    """Return the processes that compute on a GPU, or None if NVML does not list them.

    Those of a card with slices belong to the slices, so it has none itself.

    The clients of MPS are listed apart. Its server, in whose context they compute, is listed among
    the others, and computes nothing itself.
    """
    found = None if is_split(handle) else first_known(_PROCESSES, handle)
    if found is None:
        return None
    clients = {one.pid: one for one in first_known(_MPS_CLIENTS, handle) or ()}
    others = {one.pid: one for one in found if one.pid not in clients}
    named = [pid for pid in others if _is_mps_server(pid)]
    # A container hides the names. Where there are clients, one of the others is their server.
    for pid in named or list(others)[: bool(clients)]:
        del others[pid]
    return tuple(
        GpuProcess(pid=one.pid, memory=one.usedGpuMemory)
        for one in (*others.values(), *clients.values())
    )


def _is_mps_server(pid: int) -> bool:
    name = optional("nvmlSystemGetProcessName", pid)
    return name is not None and _MPS_SERVER in (name if isinstance(name, str) else name.decode())


_LEVELS: dict[int, PcieLevel] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "INT",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
# Bits of nvml.h, by value: their names change ("throttle reasons", then "event reasons").
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
# Counters of nvml.h: nanoseconds in which heat reduced the clocks, by software and by hardware.
_HEAT_FIELDS = (269, 270)
_THERMAL_POLICY = 1  # for the older counter, which will be removed with its constants
# All names that the function of a reading has had, the newest first.
_REASONS = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
_TEMPERATURE = "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"
_WORD = 64  # bits of an affinity mask's element
_CORE_WORDS = 16  # 1,024 cores
_NODE_WORDS = 2
_NODE_SCOPE = pynvml.NVML_AFFINITY_SCOPE_NODE
_SWITCH = "switch"
# States of nvml.h, by value: 0 is a GPU that is on no switch.
_FABRIC: dict[int, FabricState] = {1: "not started", 2: "in progress", 3: "completed"}
_MODES: dict[int | None, ComputeMode] = {0: "default", 2: "prohibited", 3: "exclusive process"}
_HIDDEN = "hidden"  # a virtual machine may not report the other end of a link
# Capabilities of nvml.h, by value: pynvml has a tuple for the first one.
_READ, _WRITE, _NVLINK = 0, 1, 2


class NvmlReader:
    """A reader through NVML, which is initialised for each call and shut down after it."""

    def machine(self) -> GpuMachine:
        try:
            with loaded_nvml():
                return _read_machine()
        except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded) as error:
            return GpuMachine(gpus=(), problem=_without_nvml(error))
        except pynvml.NVMLError as error:  # for example, driver and library have different versions
            return GpuMachine(gpus=(), problem=str(error))

    def health(self, gpus: Sequence[Gpu]) -> tuple[GpuHealth, ...]:
        return tuple(read_health(gpu.uuid) for gpu in gpus)


def read_health(uuid: str) -> GpuHealth:
    """Return the present state of one GPU or one MIG slice."""
    return of_gpu(uuid, partial(_health, uuid), GpuHealth(uuid=uuid))


def count_processes(uuid: str) -> int | None:
    """Return how many processes compute on a GPU or a MIG slice; None: NVML does not list them."""
    processes = of_gpu(uuid, processes_on, None)
    return None if processes is None else len(processes)


def read_load(uuid: str) -> GpuLoad:
    """Return clocks, power, heat and PCIe link of one GPU, or of the card of a MIG slice.

    These are few calls, so they fit into the time in which the GPU works off queued steps.
    """
    return of_gpu(uuid, lambda handle: GpuLoad(**_load(handle)), GpuLoad())


def keep_open(uuids: Iterable[str] = ()) -> None:
    """Keep NVML initialised until this process ends, if there is an NVML, and these GPUs in use.

    NVML counts its users. So later readings only change that count, and take no time to
    initialise NVML. A GPU without persistence that nobody uses is initialised anew for each
    process: its handle is a use.
    """
    with contextlib.suppress(pynvml.NVMLError):
        call("nvmlInit")
        for uuid in uuids:
            optional("nvmlDeviceGetHandleByUUID", uuid)


def cores_near(uuid: str) -> tuple[int, ...]:
    """Return the cores of the GPU's NUMA node, or () if NVML does not report them."""
    return of_gpu(uuid, lambda handle: _cores_near(card_of(handle)), ())


def nvml_uuid(cuda_uuid: str, mask: str | None) -> str:
    """Return NVML's UUID of a device from CUDA's UUID, which has no prefix.

    For a MIG slice CUDA gives the UUID of the slice or, in some versions, that of the card. A
    process sees at most one slice: the one that ``mask`` names, or else the card's first.
    """
    whole, cut = f"GPU-{cuda_uuid}", f"MIG-{cuda_uuid}"
    try:
        with loaded_nvml():
            if optional("nvmlDeviceGetHandleByUUID", cut) is not None:
                return cut
            card = call("nvmlDeviceGetHandleByUUID", whole)
            uuids = [call("nvmlDeviceGetUUID", one) for one in _slices(card)]
    except pynvml.NVMLError:
        return whole
    first = (mask or "").split(",")[0].strip()
    named = [uuid for uuid in uuids if first and uuid.startswith(first)]
    return next(iter(named or uuids), whole)


def _without_nvml(error: pynvml.NVMLError) -> str | None:
    """Return None if there is no GPU, or the problem if there is one whose driver is silent."""
    device = nvidia_device()
    if device is None:
        return None
    return f"{error}, although {device}; a container needs the driver's 'utility' capability"


def _read_machine() -> GpuMachine:
    gpus: list[Gpu] = []
    problems: list[str] = []
    handles: dict[int, Any] = {}
    for index in range(call("nvmlDeviceGetCount")):
        try:
            handle = call("nvmlDeviceGetHandleByIndex", index)
            found = _read_gpu(index, handle)
        except pynvml.NVMLError as error:
            problems.append(f"GPU {index}: {error}")
            continue
        if not found:
            problems.append(f"GPU {index}: MIG is on, but there is no slice")
        elif not found[0].mig:
            handles[index] = handle
        gpus += found
    cuda = optional("nvmlSystemGetCudaDriverVersion")
    return GpuMachine(
        gpus=tuple(gpus),
        links=tuple(_read_links(handles)),
        driver=optional("nvmlSystemGetDriverVersion"),
        cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        problem="; ".join(problems) or None,
    )


def _read_gpu(index: int, handle: Any) -> list[Gpu]:
    """Return the GPU, or its slices if MIG is on. Raises NVMLError if it does not answer."""
    nodes = optional("nvmlDeviceGetMemoryAffinity", handle, _NODE_WORDS, _NODE_SCOPE)
    limit_mw = optional("nvmlDeviceGetEnforcedPowerLimit", handle)
    default_mw = optional("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    ecc = optional("nvmlDeviceGetEccMode", handle)
    persistence = optional("nvmlDeviceGetPersistenceMode", handle)
    clock = pynvml.NVML_CLOCK_SM
    slices = list(_slices(handle)) if has_mig(handle) else [handle]
    return [
        Gpu(
            index=index,
            uuid=call("nvmlDeviceGetUUID", one),
            name=call("nvmlDeviceGetName", one),
            compute_capability=tuple(call("nvmlDeviceGetCudaComputeCapability", handle)),
            mig=one is not handle,
            memory=_total(optional("nvmlDeviceGetMemoryInfo", one)),
            numa_node=min(_bits(nodes), default=None),
            cores=_cores_near(handle),
            power_limit_w=_thousandth(limit_mw),
            power_default_w=_thousandth(default_mw),
            sm_clock_mhz=optional("nvmlDeviceGetApplicationsClock", handle, clock),
            sm_clock_default_mhz=optional("nvmlDeviceGetDefaultApplicationsClock", handle, clock),
            sm_clock_max_mhz=optional("nvmlDeviceGetMaxClockInfo", handle, clock),
            pcie_generation_max=optional("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            pcie_width_max=optional("nvmlDeviceGetMaxPcieLinkWidth", handle),
            persistence=None if persistence is None else bool(persistence),
            ecc=None if ecc is None else bool(ecc[0]),
            fabric=_fabric(handle),
            compute_mode=_MODES.get(optional("nvmlDeviceGetComputeMode", handle)),
        )
        for one in slices
    ]


def _fabric(handle: Any) -> FabricState | None:
    info = pynvml.c_nvmlGpuFabricInfo_t() if hasattr(pynvml, "c_nvmlGpuFabricInfo_t") else None
    if info is None or optional("nvmlDeviceGetGpuFabricInfo", handle, byref(info)) is None:
        return None
    return _FABRIC.get(info.state)


def _cores_near(handle: Any) -> tuple[int, ...]:
    arguments = handle, _CORE_WORDS, _NODE_SCOPE
    return _bits(optional("nvmlDeviceGetCpuAffinityWithinScope", *arguments))


def _slices(handle: Any) -> Iterator[Any]:
    for number in range(optional("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        one = optional("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        if one is not None:
            yield one


def _read_links(handles: dict[int, Any]) -> Iterator[GpuLink]:
    """Yield the link of every pair of whole GPUs. MIG slices have no traffic between them."""
    ends = {index: _nvlink_ends(handle) for index, handle in handles.items()}
    places = {index: _bus_id(handle) for index, handle in handles.items()}
    for first, second in itertools.combinations(handles, 2):
        pair = handles[first], handles[second]
        direct = ends[first].count(places[second]) if places[second] else 0
        switched = min(ends[first].count(_SWITCH), ends[second].count(_SWITCH))
        hidden = min(ends[first].count(_HIDDEN), ends[second].count(_HIDDEN))
        access = {_peer_status(*pair, capability) for capability in (_READ, _WRITE)}
        level = optional("nvmlDeviceGetTopologyCommonAncestor", handles[first], handles[second])
        yield GpuLink(
            first=first,
            second=second,
            nvlinks=direct or switched or (hidden if _peer_status(*pair, _NVLINK) else 0),
            pcie=None if level is None else _LEVELS.get(level),
            peer_access=False if False in access else None if None in access else True,
        )


def _peer_status(first: Any, second: Any, capability: int) -> bool | None:
    """Return whether one GPU may use the other so; in a virtual machine PCIe may not allow it."""
    status = optional("nvmlDeviceGetP2PStatus", first, second, capability)
    known = status is not None and status != pynvml.NVML_P2P_STATUS_UNKNOWN
    return status == pynvml.NVML_P2P_STATUS_OK if known else None


def _nvlink_ends(handle: Any) -> list[str]:
    """Return the other end of each active NVLink of the GPU: "switch", a bus id, or "hidden"."""
    ends = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if not optional("nvmlDeviceGetNvLinkState", handle, link):
            continue
        kind = optional("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ends.append(_SWITCH)
        elif info := optional("nvmlDeviceGetNvLinkRemotePciInfo", handle, link):
            ends.append(_text(info.busId))
        else:
            ends.append(_HIDDEN)
    return ends


def _bus_id(handle: Any) -> str:
    info = optional("nvmlDeviceGetPciInfo", handle)
    return _text(info.busId) if info else ""


def _health(uuid: str, handle: Any) -> GpuHealth:
    """Return every reading. One that fails is None, also if the GPU is lost.

    A MIG slice has the clocks and the temperature of its card. The card's energy and power are
    those of all its slices, so a slice has neither.
    """
    card = card_of(handle)
    remapped = optional("nvmlDeviceGetRemappedRows", card)
    return GpuHealth(
        uuid=uuid,
        **_load(handle),
        heat_s=heat_s(card),
        energy_j=energy_j(handle),
        ecc_corrected=ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ecc_uncorrected=ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        remap_pending=None if remapped is None else bool(remapped[2]),
        memory_used=memory_used(handle),
        processes=processes_on(handle),
    )


def _load(handle: Any) -> dict[str, Any]:
    """Return the fields of GpuLoad. The power of a card is that of all its slices."""
    card = card_of(handle)
    clock, link = "nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrPcieLink"
    power_mw = None if is_shared(handle) else optional("nvmlDeviceGetPowerUsage", handle)
    return {
        "throttle": _throttle_reasons(card),
        "temperature_c": first_known(_TEMPERATURE, card, pynvml.NVML_TEMPERATURE_GPU),
        "sm_clock_mhz": optional(clock, card, pynvml.NVML_CLOCK_SM),
        "memory_clock_mhz": optional(clock, card, pynvml.NVML_CLOCK_MEM),
        "power_w": _thousandth(power_mw),
        "pcie_generation": optional(f"{link}Generation", card),
        "pcie_width": optional(f"{link}Width", card),
    }


def energy_j(handle: Any) -> float | None:
    """Return the counter in joules, or None for a slice and a card with slices.

    The card counts the energy of all its slices together.
    """
    if is_shared(handle):
        return None
    return _thousandth(optional("nvmlDeviceGetTotalEnergyConsumption", handle))


def memory_used(handle: Any) -> int | None:
    """Return the bytes in use, or None for a card with slices, which have its memory."""
    memory = None if is_split(handle) else optional("nvmlDeviceGetMemoryInfo", handle)
    return None if memory is None else int(memory.used)


def _throttle_reasons(card: Any) -> tuple[Throttle, ...] | None:
    bits = first_known(_REASONS, card)
    return None if bits is None else tuple(name for bit, name in _THROTTLE.items() if bits & bit)


def heat_s(card: Any) -> float | None:
    """Return the seconds with clocks reduced by heat, since the driver was loaded.

    Software and hardware may reduce them at the same time, so the longer time counts.
    """
    fields = optional("nvmlDeviceGetFieldValues", card, list(_HEAT_FIELDS)) or ()
    counted = [one.value.ullVal for one in fields if one.nvmlReturn == pynvml.NVML_SUCCESS]
    if counted:
        return int(max(counted)) / 1e9
    status = optional("nvmlDeviceGetViolationStatus", card, _THERMAL_POLICY)
    return None if status is None else int(status.violationTime) / 1e9


def ecc_errors(handle: Any, kind: int) -> int | None:
    name, counter = "nvmlDeviceGetTotalEccErrors", pynvml.NVML_VOLATILE_ECC
    errors: int | None = optional(name, handle, kind, counter)
    return errors


def _bits(words: Any) -> tuple[int, ...]:
    """Return the numbers of the set bits of an affinity mask."""
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
    """Return a bus id in lower case. Some versions give bytes, or capital letters."""
    return (value.decode() if isinstance(value, bytes) else value).lower()
