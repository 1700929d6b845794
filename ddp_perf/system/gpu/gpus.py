"""The GPUs that a session may use, in CUDA's order, and what the driver and NCCL log of them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ddp_perf.core.gpu import Gpu, GpuHealth, GpuMachine, NodeHardware
from ddp_perf.core.launch import NcclChoice
from ddp_perf.system.gpu.nvml import NvmlReader


class GpuReader(Protocol):
    """A reader of the GPUs of this machine, or of one that was recorded."""

    def machine(self) -> GpuMachine:
        """Return all GPUs, also those that CUDA_VISIBLE_DEVICES hides; none without a driver."""
        ...

    def health(self, gpus: Sequence[Gpu]) -> tuple[GpuHealth, ...]:
        """Return the present state of these GPUs, in their order."""
        ...


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


# Xid errors: the NVIDIA driver's records of failed GPUs in the kernel's log.


_KERNEL_LOG = Path("/dev/kmsg")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")
# These are faults of an application, after which the GPU works as before: an exception of a kernel,
# a page fault, and the end of a process that had either or was killed (NVIDIA, "XID Errors": 13,
# 31, 43, 45). They stay in the log until the next boot.
_OF_APPLICATIONS = frozenset({"13", "31", "43", "45"})
_RECORD = 8192  # bytes: each read returns one record, and no record is longer


def find_xids(log: Path = _KERNEL_LOG) -> list[str]:
    """Return each error of a GPU once, the oldest first, without faults of applications.

    An entry is ``Xid 79 of 0000:3b:00: GPU has fallen off the bus.`` The list is empty if there
    are none, or if this process may not read the log (kernel.dmesg_restrict).
    """
    found = [
        f"Xid {number} of {place}" + (f": {text.strip()}" if text else "")
        for place, number, text in _XID.findall(_read(log))
        if number not in _OF_APPLICATIONS
    ]
    return list(dict.fromkeys(found))


def _read(log: Path) -> str:
    """Return the contents of the log. Records that are overwritten meanwhile are skipped."""
    try:
        # Windows has no such flag, nor the log.
        descriptor = os.open(log, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return ""
    records = []
    try:
        while True:
            try:
                record = os.read(descriptor, _RECORD)
            except BrokenPipeError:
                continue
            except OSError:  # BlockingIOError: there are no further records
                break
            if not record:
                break
            records.append(record)
    finally:
        os.close(descriptor)
    return b"".join(records).decode(errors="replace")


# The choice of NCCL, from the lines that it prints with NCCL_DEBUG=INFO.
#
# The formats are those of NCCL's source: init.cc prints the version and the channels, the files of
# transport/ print the transports, and enqueue.cc prints the algorithm of each call, if
# NCCL_DEBUG_SUBSYS has TUNING.


_VERSION = re.compile(r"NCCL version (\d+(?:\.\d+)+)")
_CHANNELS = re.compile(r"NCCL INFO (\d+) coll channels,(?:.*? (\d+) nvls channels)?")
_TRANSPORT = re.compile(
    r"NCCL INFO Channel \S+ : \S+ -> \S+ (?:\[(?:send|receive)\] )?via (\S+(?: pointer)?)"
)
_DEVICE = re.compile(r"/\d+(?:\(\d+\))?(?=/|$)")  # the number of a network card
_ALGORITHM = re.compile(r"NCCL INFO (?:(\w+): )?\d+ Bytes -> Algo (\w+) proto (\w+)")
# NCCL before 2.24 prints the indices of nccl_common.h.
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


def nccl_choice(outputs: Iterable[str]) -> NcclChoice | None:
    """Return NCCL's choice from the outputs of a launch's ranks, or None without a line of it."""
    text = "\n".join(outputs)
    version, channels = _VERSION.search(text), _CHANNELS.search(text)
    transports = dict.fromkeys(_DEVICE.sub("", name) for name in _TRANSPORT.findall(text))
    algorithms = dict.fromkeys(_algorithms(text))
    if not (version or channels or transports or algorithms):
        return None
    return NcclChoice(
        version=version[1] if version else None,
        channels=int(channels[1]) if channels else None,
        nvls_channels=int(channels[2]) if channels and channels[2] else None,
        transports=tuple(sorted(transports)),
        algorithms=tuple(sorted(algorithms)),
    )


def _algorithms(text: str) -> Iterator[str]:
    for call, algorithm, protocol in _ALGORITHM.findall(text):
        how = f"{_name_of(algorithm, _ALGORITHMS)}/{_name_of(protocol, _PROTOCOLS)}"
        yield f"{call} {how}" if call else how


def _name_of(text: str, names: tuple[str, ...]) -> str:
    """Return a name in capitals, of a name or an index."""
    if not text.isdecimal():
        return text.upper()
    return names[int(text)] if int(text) < len(names) else text
