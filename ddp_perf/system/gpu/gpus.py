"""The GPUs that a session may use, in CUDA's order, and the name of their baseline file."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ddp_perf.core.gpu import Gpu, GpuMachine, NodeHardware
from ddp_perf.system.gpu.nvml import NvmlReader
from ddp_perf.system.gpu.reader import GpuReader

NO_GPUS = GpuMachine(gpus=())


def find_gpus(
    environ: Mapping[str, str] = os.environ, reader: GpuReader | None = None
) -> GpuMachine:
    """Return the GPUs that CUDA would show under ``environ``, or NO_GPUS if there is no driver."""
    machine = (reader or NvmlReader()).machine()
    visible = visible_gpus(machine.gpus, environ.get("CUDA_VISIBLE_DEVICES"))
    indices = {gpu.index for gpu in visible}
    links = tuple(link for link in machine.links if {link.first, link.second} <= indices)
    return msgspec.structs.replace(machine, gpus=tuple(visible), links=links)


def visible_gpus(gpus: Sequence[Gpu], mask: str | None) -> list[Gpu]:
    """Return the GPUs that a value of CUDA_VISIBLE_DEVICES selects, by CUDA's own rule.

    The mask contains indices or UUID prefixes. They count in order, up to the first invalid one;
    a repeated entry selects no GPU at all (`torch.cuda._parse_visible_devices`).

    A process sees at most one MIG slice, and no whole GPU beside it (NVIDIA's MIG user guide,
    "CUDA Device Enumeration").
    """
    visible = list(gpus) if mask is None else _named(gpus, mask)
    slices = [gpu for gpu in visible if gpu.mig]
    return slices[:1] or visible


def _named(gpus: Sequence[Gpu], mask: str) -> list[Gpu]:
    entries = list(itertools.takewhile(_is_entry, map(str.strip, mask.split(","))))
    if len(set(entries)) < len(entries):
        return []
    named: list[Gpu] = []
    for entry in entries:
        if entry.isdecimal():  # of a GPU with MIG slices: its first slice
            matches = [gpu for gpu in gpus if gpu.index == int(entry)][:1]
        else:
            matches = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
        if len(matches) != 1:
            break
        if matches[0] in named:
            return []
        named += matches
    return named


def _is_entry(entry: str) -> bool:
    return entry.isdecimal() or entry.startswith(("GPU-", "MIG-"))


def accelerator_slug(machine: GpuMachine) -> str:
    """Return the name of the baseline file: ``v100-pcie-16gb``, ``a100-sxm4-40gb``, ``h200``.

    A link that the model does not imply is appended: ``a100-pcie-40gb-nvlink`` has bridges.
    """
    slug = "+".join(sorted({_slug(gpu.name) for gpu in machine.gpus}))
    if (machine.interconnect or "").startswith("NV") and "pcie" in slug:
        slug += "-nvlink"
    return slug


def _slug(name: str) -> str:
    words = re.sub(r"\b(nvidia|tesla)\b", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def hardware_of(machine: GpuMachine, networks: str | None = None) -> NodeHardware:
    """Return the state of the GPUs of a machine; ``networks`` are those of its host."""
    gpus = machine.gpus
    persistence, ecc = _known(gpus, "persistence"), _known(gpus, "ecc")
    access = {True: "yes", False: "no", None: "?"}
    return NodeHardware(
        links=" ".join(machine.slowest_links) or None,
        peer_access=" ".join(access[one] for one in machine.peer_access) or None,
        gpu_memory=min(_known(gpus, "memory"), default=None),
        power_limit_w=min(_known(gpus, "power_limit_w"), default=None),
        sm_clock_mhz=min(_known(gpus, "sm_clock_mhz"), default=None),
        persistence=all(persistence) if persistence else None,
        ecc=any(ecc) if ecc else None,
        networks=networks,
    )


def _known(gpus: Sequence[Gpu], name: str) -> list[Any]:
    return [value for gpu in gpus if (value := getattr(gpu, name)) is not None]
