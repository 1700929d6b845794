"""Machines as they were read elsewhere: a reader that replays them, and an NVML that does.

A file of ``tests/unit/system/machines/`` says where its figures come from. What ``ddp-perf
doctor --json`` prints on a machine is such a file, but for its ``source``.
"""

# ruff: noqa: N802 – the fake bears pynvml's own names

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_uint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pynvml

from ddp_perf.core.gpu import Gpu, GpuHealth, GpuLink, GpuMachine

_DIRECTORY = Path(__file__).parent / "unit" / "system" / "machines"
RECORDED = tuple(sorted(path.stem for path in _DIRECTORY.glob("*.json")))
_LEVELS = {"INT": 0, "PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}


class _File(msgspec.Struct):
    source: str
    machine: GpuMachine
    health: tuple[GpuHealth, ...]


class RecordedReader:
    """Reads one of the files, or a machine made up by a test."""

    def __init__(self, machine: GpuMachine, health: Sequence[GpuHealth] = ()) -> None:
        self._machine = machine
        self._health = {one.uuid: one for one in health}

    @classmethod
    def of(cls, name: str) -> RecordedReader:
        file = msgspec.json.decode((_DIRECTORY / f"{name}.json").read_bytes(), type=_File)
        assert file.source
        return cls(file.machine, file.health)

    def machine(self) -> GpuMachine:
        return self._machine

    def health(self, gpus: Sequence[Gpu]) -> tuple[GpuHealth, ...]:
        return tuple(self._health.get(gpu.uuid, GpuHealth(uuid=gpu.uuid)) for gpu in gpus)


class FakeNvml:
    """Answers pynvml's functions with a machine's readings, as a driver would.

    A reading that is None is not supported there. ``lost`` are indices of GPUs that fell off.
    NVLinks lead through switches where the pairs need more of them than a GPU has.
    """

    def __init__(
        self,
        machine: GpuMachine,
        health: Sequence[GpuHealth] = (),
        *,
        lost: Sequence[int] = (),
        throttle_bits: int = 0,
    ) -> None:
        self._machine = machine
        self._health = {one.uuid: one for one in health}
        self._lost = lost
        self._throttle_bits = throttle_bits
        self._indices = sorted({gpu.index for gpu in machine.gpus} | set(lost))
        self.open = 0  # initialisations without their shutdown
        total = dict.fromkeys(self._indices, 0)
        for link in machine.links:
            total[link.first] += link.nvlinks
            total[link.second] += link.nvlinks
        self._switched = max(total.values(), default=0) > pynvml.NVML_NVLINK_MAX_LINKS

    def install(self, monkeypatch: Any) -> FakeNvml:
        for name in dir(pynvml):
            if name.startswith(("nvmlDevice", "nvmlSystem", "nvmlInit", "nvmlShutdown")):
                fake = getattr(self, "_" + name, self._unsupported)
                monkeypatch.setattr(pynvml, name, fake)
        return self

    def _unsupported(self, *arguments: Any) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _or_unsupported(self, value: Any) -> Any:
        return self._unsupported() if value is None else value

    def _nvmlInit(self) -> None:
        self.open += 1

    def _nvmlShutdown(self) -> None:
        self.open -= 1

    def _nvmlSystemGetDriverVersion(self) -> str:
        return self._or_unsupported(self._machine.driver)

    def _nvmlSystemGetCudaDriverVersion(self) -> int:
        version = self._or_unsupported(self._machine.cuda_driver)
        major, minor = map(int, version.split("."))
        return 1000 * major + 10 * minor

    def _nvmlDeviceGetCount(self) -> int:
        return len(self._indices)

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        if index in self._lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        gpus = [gpu for gpu in self._machine.gpus if gpu.index == index]
        return SimpleNamespace(gpu=gpus[0], slices=[gpu for gpu in gpus if gpu.mig])

    def _nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        for gpu in self._machine.gpus:
            if uuid == gpu.uuid:
                return SimpleNamespace(gpu=gpu, slices=[])
            if gpu.mig and uuid == card_uuid(gpu):
                return self._nvmlDeviceGetHandleByIndex(gpu.index)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _nvmlDeviceIsMigDeviceHandle(self, handle: Any) -> c_uint:
        return c_uint(handle.gpu.mig and not handle.slices)

    def _nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Any) -> Any:
        return self._nvmlDeviceGetHandleByIndex(handle.gpu.index)

    def _nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        return [int(bool(handle.slices))] * 2

    def _nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        return 7

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:
        if index >= len(handle.slices):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return SimpleNamespace(gpu=handle.slices[index], slices=[])

    def _nvmlDeviceGetUUID(self, handle: Any) -> str:
        return handle.gpu.uuid

    def _nvmlDeviceGetName(self, handle: Any) -> str:
        return handle.gpu.name

    def _nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> list[int]:
        return list(handle.gpu.compute_capability)

    def _nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        used = self._now(handle).memory_used or 0
        return SimpleNamespace(total=self._or_unsupported(handle.gpu.memory), used=used)

    def _nvmlDeviceGetMemoryAffinity(self, handle: Any, words: int, scope: int) -> Any:
        return _mask([self._or_unsupported(handle.gpu.numa_node)], words)

    def _nvmlDeviceGetCpuAffinityWithinScope(self, handle: Any, words: int, scope: int) -> Any:
        return _mask(handle.gpu.cores, words)

    def _nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:
        return round(self._or_unsupported(handle.gpu.power_limit_w) * 1000)

    def _nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Any) -> int:
        return round(self._or_unsupported(handle.gpu.power_default_w) * 1000)

    def _nvmlDeviceGetApplicationsClock(self, handle: Any, kind: int) -> int:
        return self._or_unsupported(handle.gpu.sm_clock_mhz)

    def _nvmlDeviceGetDefaultApplicationsClock(self, handle: Any, kind: int) -> int:
        return self._or_unsupported(handle.gpu.sm_clock_default_mhz)

    def _nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: int) -> int:
        return self._or_unsupported(handle.gpu.sm_clock_max_mhz)

    def _nvmlDeviceGetMaxPcieLinkGeneration(self, handle: Any) -> int:
        return self._or_unsupported(handle.gpu.pcie_generation_max)

    def _nvmlDeviceGetMaxPcieLinkWidth(self, handle: Any) -> int:
        return self._or_unsupported(handle.gpu.pcie_width_max)

    def _nvmlDeviceGetPersistenceMode(self, handle: Any) -> int:
        return int(self._or_unsupported(handle.gpu.persistence))

    def _nvmlDeviceGetEccMode(self, handle: Any) -> list[int]:
        return [int(self._or_unsupported(handle.gpu.ecc))] * 2

    def _nvmlDeviceGetComputeMode(self, handle: Any) -> int:
        modes = {"default": 0, "prohibited": 2, "exclusive process": 3}
        return modes[self._or_unsupported(handle.gpu.compute_mode)]

    def _nvmlDeviceGetGpuFabricInfo(self, handle: Any, info: Any) -> int:
        states = {None: 0, "not started": 1, "in progress": 2, "completed": 3}
        info._obj.state = states[handle.gpu.fabric]
        return pynvml.NVML_SUCCESS

    def _nvmlDeviceGetRemappedRows(self, handle: Any) -> tuple[int, int, int, int]:
        return 1, 0, int(self._or_unsupported(self._now(handle).remap_pending)), 0

    def _nvmlDeviceGetTopologyCommonAncestor(self, first: Any, second: Any) -> int:
        link = self._machine.link(first.gpu, second.gpu)
        return _LEVELS[self._or_unsupported(link.pcie)]

    def _nvmlDeviceGetP2PStatus(self, first: Any, second: Any, capability: int) -> int:
        link = self._machine.link(first.gpu, second.gpu)
        if capability == pynvml.NVML_P2P_CAPS_INDEX_NVLINK:
            allowed: bool | None = link.nvlinks > 0
        else:
            allowed = self._or_unsupported(link.peer_access)
        return (
            pynvml.NVML_P2P_STATUS_OK if allowed else pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED
        )

    def _nvmlDeviceGetPciInfo(self, handle: Any) -> Any:
        return SimpleNamespace(busId=_bus_id(handle.gpu.index))

    def _nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int:
        return int(link < len(self._ends(handle.gpu)))

    def _nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, link: int) -> int:
        return (
            pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            if self._switched
            else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
        )

    def _nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> Any:
        return SimpleNamespace(busId=_bus_id(self._ends(handle.gpu)[link]).upper().encode())

    def _ends(self, gpu: Gpu) -> list[int]:
        """The GPU at the other end of each NVLink; of a switch, whichever."""
        links = [link for link in self._machine.links if gpu.index in (link.first, link.second)]
        if self._switched:
            return [0] * max((link.nvlinks for link in links), default=0)
        return [_other(link, gpu) for link in links for _ in range(link.nvlinks)]

    def _now(self, handle: Any) -> GpuHealth:
        """Of a slice's card, too, whose own readings are those of all its slices."""
        uuid = card_uuid(handle.gpu) if handle.slices else handle.gpu.uuid
        return self._health.get(uuid, GpuHealth(uuid=uuid))

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:
        return self._throttle_bits

    def _nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        now = self._now(handle)
        clocks = {
            pynvml.NVML_CLOCK_SM: now.sm_clock_mhz,
            pynvml.NVML_CLOCK_MEM: now.memory_clock_mhz,
        }
        return self._or_unsupported(clocks[kind])

    def _nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        return round(self._or_unsupported(self._now(handle).energy_j) * 1000)

    def _nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> int:
        now = self._now(handle)
        errors = {
            pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED: now.ecc_corrected,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED: now.ecc_uncorrected,
        }
        return self._or_unsupported(errors[kind])

    def _nvmlDeviceGetViolationStatus(self, handle: Any, policy: int) -> Any:
        heat_s = self._or_unsupported(self._now(handle).heat_s)
        return SimpleNamespace(referenceTime=10**12, violationTime=round(heat_s * 1e9))

    def _nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        return self._or_unsupported(self._now(handle).temperature_c)

    def _nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return round(self._or_unsupported(self._now(handle).power_w) * 1000)

    def _nvmlDeviceGetCurrPcieLinkGeneration(self, handle: Any) -> int:
        return self._or_unsupported(self._now(handle).pcie_generation)

    def _nvmlDeviceGetCurrPcieLinkWidth(self, handle: Any) -> int:
        return self._or_unsupported(self._now(handle).pcie_width)

    def _nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        processes = self._or_unsupported(self._now(handle).processes)
        return [SimpleNamespace(pid=p.pid, usedGpuMemory=p.memory) for p in processes]


def _mask(bits: Sequence[int], words: int) -> list[int]:
    """As NVML packs them: 64 to a word."""
    mask = [0] * words
    for bit in bits:
        mask[bit // 64] |= 1 << bit % 64
    return mask


def card_uuid(gpu: Gpu) -> str:
    """Return the UUID of the card that a slice is cut from."""
    return f"GPU-card-{gpu.index}"


def _bus_id(index: int) -> str:
    return f"00000000:{0xA0 + index:02x}:00.0"


def _other(link: GpuLink, gpu: Gpu) -> int:
    return link.second if link.first == gpu.index else link.first
