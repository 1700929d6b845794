"""The GPUs of this machine, read through NVML: no torch, no CUDA context."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pynvml


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One visible GPU. ``index`` is NVML's: CUDA_VISIBLE_DEVICES is applied already."""

    index: int
    uuid: str
    name: str
    compute_capability: tuple[int, int]


class GpuMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The visible GPUs, what links them, and the driver."""

    gpus: tuple[Gpu, ...]
    interconnect: str | None  # between all of them: "nvlink" or "pcie"; None for one GPU
    driver: str | None
    problem: str | None = None  # what NVML said where it could not tell

    @property
    def name(self) -> str:
        """The model; every model, where they differ."""
        return " + ".join(sorted({gpu.name for gpu in self.gpus}))


NO_GPUS = GpuMachine(gpus=(), interconnect=None, driver=None)


def find_gpus(environ: Mapping[str, str] = os.environ) -> GpuMachine:
    """The GPUs that CUDA would show under ``environ``; NO_GPUS where there is no driver."""
    try:
        with _nvml():
            return _read_machine(environ.get("CUDA_VISIBLE_DEVICES"))
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return NO_GPUS
    except pynvml.NVMLError as error:  # a GPU that fell off, a driver of another version
        return msgspec.structs.replace(NO_GPUS, problem=str(error))


def _read_machine(mask: str | None) -> GpuMachine:
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    gpus = [
        Gpu(
            index=index,
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            name=pynvml.nvmlDeviceGetName(handle),
            compute_capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        )
        for index, handle in enumerate(handles)
    ]
    visible = visible_gpus(gpus, mask)
    return GpuMachine(
        gpus=tuple(visible),
        interconnect=_interconnect([handles[gpu.index] for gpu in visible]),
        driver=pynvml.nvmlSystemGetDriverVersion(),
    )


def visible_gpus(gpus: Sequence[Gpu], mask: str | None) -> list[Gpu]:
    """CUDA's own rule: indices or UUID prefixes, in order, up to the first invalid one."""
    if mask is None:
        return list(gpus)
    visible: list[Gpu] = []
    for entry in mask.split(","):
        entry = entry.strip()
        matches = [
            gpu
            for gpu in gpus
            if (entry.isdecimal() and gpu.index == int(entry))
            or (entry.startswith("GPU-") and gpu.uuid.startswith(entry))
        ]
        if len(matches) != 1 or matches[0] in visible:
            break
        visible += matches
    return visible


def accelerator_slug(machine: GpuMachine) -> str:
    """Name of the baseline file: ``v100-pcie-16gb``, ``a100-sxm4-40gb``, ``h200``.

    A link that the model does not imply is appended: ``a100-pcie-40gb-nvlink`` has bridges.
    """
    slug = "+".join(sorted({_slug(gpu.name) for gpu in machine.gpus}))
    if machine.interconnect == "nvlink" and "pcie" in slug:
        slug += "-nvlink"
    return slug


def _slug(name: str) -> str:
    words = re.sub(r"\b(nvidia|tesla)\b", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


@contextlib.contextmanager
def _nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _interconnect(handles: Sequence[Any]) -> str | None:
    """The slowest link decides: NVLink only where every pair has it."""
    pairs = list(itertools.combinations(handles, 2))
    if not pairs:
        return None
    return "nvlink" if all(_has_nvlink(a, b) for a, b in pairs) else "pcie"


def _has_nvlink(a: Any, b: Any) -> bool:
    try:
        status = pynvml.nvmlDeviceGetP2PStatus(a, b, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    except pynvml.NVMLError:
        return False
    return bool(status == pynvml.NVML_P2P_STATUS_OK)
